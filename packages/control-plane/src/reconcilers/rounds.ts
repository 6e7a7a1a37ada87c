// Decides when each host is compared with its rows: when this replica begins to listen to it, when there is a reason to
// suspect a difference, again soon while there are differences, and otherwise in slow rounds. Events tell of almost all
// changes, so the rounds only find what no event told. A round takes longer the more hosts and machines there are, so
// that its cost for the control plane stays the same.
import type { App } from '../app.ts';
import { attempt } from './attempt.ts';

/** The result of a comparison. `size`: how many objects it compared. `isSettled`: whether it found no difference. */
export type Compared = { size: number; isSettled: boolean };

/** Compares one kind of object of a host with the rows. */
export type Comparison = {
  name: string;
  /** The pause between two comparisons of a host. After a difference the shortest pause applies. */
  pauseMs: { shortest: number; longest: number };
  /** Returns the comparison of one host. It may remember from call to call what it has seen. */
  begin: (hostId: string) => () => Promise<Compared>;
};

export type Rounds = {
  /** Starts the comparisons that are due. Does not wait for them. */
  pass(): Promise<void>;
  /** Makes all comparisons of a host due now. */
  suspect(hostId: string): void;
  /** Makes all comparisons of all hosts due now. */
  suspectAll(): void;
  /** Compares all hosts that this replica listens to, and waits for the end. */
  runOnce(): Promise<void>;
  /** Waits until all comparisons that were started have ended. */
  settled(): Promise<void>;
};

/**
 * How many comparisons run at once, each of another host, so that they leave connections to the database for requests.
 * One that takes longer than `SLOW_MS` (because its host hangs) is not counted any more, so it never delays other
 * hosts.
 */
const WIDTH = 6;
const SLOW_MS = 1_000;
/**
 * A round takes a second for each thousand objects. The calls and statements for a host cost as much as a few hundred
 * objects. (Measured by bench/fleet/idle.ts.)
 */
const OBJECTS_PER_SEC = 1_000;
const HOST_OBJECTS = 300;
/** Pauses differ by a tenth at random, so that the comparisons of hosts that were found together spread out. */
const SPREAD = 0.1;
/**
 * A comparison also runs when another one of its host does, if this part or less of its pause is left. So those of one
 * host follow each other on one connection.
 */
const TOGETHER = 0.15;
/**
 * From this number of hosts on, the idle connections to a host are closed after its comparisons. An idle connection takes
 * 75 KB of memory, and a new one 1 to 2 ms of processor time. With fewer hosts they stay open, so that requests find them.
 * (Measured by bench/fleet/idle.ts.)
 */
const MANY_HOSTS = 100;

type Slot = {
  hostId: string;
  comparison: Comparison;
  compare: () => Promise<Compared>;
  dueAt: number;
  /** When it ran last, on the clock of `performance.now()`. */
  startedAt: number;
  /** The last pause, in milliseconds. */
  pauseMs: number;
  size: number;
  running: Promise<void> | undefined;
};

export function createRounds(app: App, comparisons: readonly Comparison[]): Rounds {
  let slots = new Map<string, Slot[]>();
  /** How many objects of all hosts each comparison compares in a round. */
  const objects = new Map<Comparison, number>();
  const running = new Set<Promise<void>>();
  /** The hosts with a comparison that runs and is not slow. */
  const atWork = new Set<string>();
  /** Whether comparisons that are due wait for others to end. Then the next search begins where the last one ended. */
  let isFull = false;
  let next = 0;

  const begin = (hostId: string): Slot[] =>
    comparisons.map((comparison) => ({
      ...{ hostId, comparison, compare: comparison.begin(hostId), dueAt: 0, startedAt: 0, pauseMs: 0, size: 0 },
      running: undefined,
    }));
  /** Begins with the hosts that this replica has begun to listen to, and forgets the others. */
  const follow = () => {
    slots = new Map(app.hosts.listenedIds().map((hostId) => [hostId, slots.get(hostId) ?? begin(hostId)]));
    objects.clear();
    for (const { comparison, size } of all())
      objects.set(comparison, (objects.get(comparison) ?? 0) + HOST_OBJECTS + size);
  };
  const all = () => [...slots.values()].flat();

  const pauseAfter = ({ comparison }: Slot, { isSettled }: Compared): number => {
    const { shortest, longest } = comparison.pauseMs;
    if (!isSettled) return shortest;
    const roundMs = ((objects.get(comparison) ?? 0) / OBJECTS_PER_SEC) * 1_000;
    return Math.max(shortest, Math.min(roundMs, longest)) * (1 + SPREAD * (Math.random() - 0.5));
  };
  /** Makes other comparisons of the host due that would be due soon. */
  const joinOthers = (hostId: string, now: number) => {
    for (const other of slots.get(hostId) ?? []) {
      if (other.dueAt - now < other.pauseMs * TOGETHER) other.dueAt = Math.min(other.dueAt, now);
    }
  };
  const isIdle = (hostId: string, now: number): boolean =>
    (slots.get(hostId) ?? []).every(({ running, dueAt }) => !running && dueAt > now);
  /** Closes the connections of a host whose comparisons have ended, if there are many hosts. */
  const closeConnections = (hostId: string) => {
    if (slots.size >= MANY_HOSTS && isIdle(hostId, performance.now())) app.hosts.closeIdle(hostId);
  };
  const run = (slot: Slot): Promise<void> => {
    const { hostId, comparison } = slot;
    slot.startedAt = performance.now();
    joinOthers(hostId, slot.startedAt);
    slot.dueAt = Number.POSITIVE_INFINITY;
    atWork.add(hostId);
    let isCounted = true;
    const makeRoom = () => {
      if (!isCounted) return;
      isCounted = false;
      atWork.delete(hostId);
      // Those of one host follow each other, on one connection.
      startDueOf(hostId);
      if (isFull) startDue();
    };
    const slow = setTimeout(makeRoom, SLOW_MS).unref();
    const work = async () => {
      let compared: Compared = { size: slot.size, isSettled: false };
      try {
        await attempt(app, { host_id: hostId }, async () => {
          compared = await slot.compare();
        });
      } catch {
        // The database does not answer. The next pass tries again.
        app.log.debug({ host_id: hostId, comparison: comparison.name }, 'a comparison waits for the database');
      }
      slot.size = compared.size;
      slot.running = undefined;
      slot.pauseMs = pauseAfter(slot, compared);
      // If the host was suspected meanwhile, it is due already.
      slot.dueAt = Math.min(slot.dueAt, performance.now() + slot.pauseMs);
      clearTimeout(slow);
      closeConnections(hostId);
      makeRoom();
      if (slot.dueAt === 0) startDue();
    };
    const ended = work().finally(() => running.delete(ended));
    running.add(ended);
    slot.running = ended;
    return ended;
  };
  /** Returns the comparison of a host that is due and that ran least recently. */
  const dueOf = (hostId: string, now: number): Slot | undefined => {
    const due = slots.get(hostId)?.filter(({ running, dueAt }) => !running && dueAt <= now);
    return due?.toSorted((one, other) => one.startedAt - other.startedAt)[0];
  };
  /** Starts the next comparison of a host, if one is due. */
  const startDueOf = (hostId: string) => {
    const due = app.closing.aborted ? undefined : dueOf(hostId, performance.now());
    if (due) void run(due);
  };
  const startDue = () => {
    if (app.closing.aborted) return;
    const now = performance.now();
    const hostIds = [...slots.keys()];
    const first = next;
    for (let step = 0; step < hostIds.length; step++) {
      const index = (first + step) % hostIds.length;
      const hostId = hostIds[index] ?? '';
      // The next comparison of a host that is at work starts when that one ends.
      const due = atWork.has(hostId) ? undefined : dueOf(hostId, now);
      if (!due) continue;
      next = index;
      isFull = atWork.size >= WIDTH;
      if (isFull) return;
      void run(due);
    }
    isFull = false;
  };
  const suspectSlots = (suspects: readonly Slot[]) => {
    for (const slot of suspects) slot.dueAt = 0;
    startDue();
  };
  return {
    pass: async () => {
      follow();
      startDue();
    },
    suspect: (hostId) => {
      follow();
      suspectSlots(slots.get(hostId) ?? []);
    },
    suspectAll: () => {
      follow();
      suspectSlots(all());
    },
    runOnce: async () => {
      follow();
      await Promise.all(
        all().map(async (slot) => {
          await slot.running;
          await (slot.running ?? run(slot));
        }),
      );
    },
    settled: async () => {
      await Promise.all(running);
    },
  };
}
