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
 * How many comparisons run at once, so that they leave connections to the database for requests. One that takes longer than `SLOW_MS` (because its host hangs) is not counted any
 * more, so it never delays other hosts.
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

type Slot = {
  hostId: string;
  comparison: Comparison;
  compare: () => Promise<Compared>;
  dueAt: number;
  size: number;
  running: Promise<void> | undefined;
};

export function createRounds(app: App, comparisons: readonly Comparison[]): Rounds {
  let slots = new Map<string, Slot[]>();
  /** How many objects of all hosts each comparison compares in a round. */
  const objects = new Map<Comparison, number>();
  const running = new Set<Promise<void>>();
  /** How many comparisons run and are not slow. */
  let atWork = 0;
  /** Whether comparisons that are due wait for others to end. Then the next search begins where the last one ended. */
  let isFull = false;
  let next = 0;

  const begin = (hostId: string): Slot[] =>
    comparisons.map((comparison) => ({
      ...{ hostId, comparison, compare: comparison.begin(hostId), dueAt: 0, size: 0 },
      running: undefined,
    }));
  /** Begins with the hosts that this replica has begun to listen to, and forgets the others. */
  const follow = () => {
    slots = new Map(app.hosts.listenedIds().map((hostId) => [hostId, slots.get(hostId) ?? begin(hostId)]));
    objects.clear();
    for (const { comparison, size } of all())
      objects.set(comparison, (objects.get(comparison) ?? 0) + HOST_OBJECTS + size);
  };
  /**
   * All slots: the first comparison of each host, then the second one of each, and so on. So when many hosts are due,
   * comparisons of different hosts run at once, and those of one host follow each other on one connection. In the order
   * of the hosts, a replica that begins to listen would open a TLS connection for each comparison of each host, and keep
   * it for a minute.
   */
  const all = () => {
    const ofHosts = [...slots.values()];
    return comparisons.flatMap((_, kind) => ofHosts.flatMap((ofHost) => ofHost[kind] ?? []));
  };

  const pauseAfter = ({ comparison }: Slot, { isSettled }: Compared): number => {
    const { shortest, longest } = comparison.pauseMs;
    if (!isSettled) return shortest;
    const roundMs = ((objects.get(comparison) ?? 0) / OBJECTS_PER_SEC) * 1_000;
    return Math.max(shortest, Math.min(roundMs, longest)) * (1 + SPREAD * (Math.random() - 0.5));
  };
  const run = (slot: Slot): Promise<void> => {
    const { hostId, comparison } = slot;
    slot.dueAt = Number.POSITIVE_INFINITY;
    atWork++;
    let isCounted = true;
    const stopCounting = () => {
      if (isCounted) atWork--;
      isCounted = false;
    };
    const makeRoom = () => {
      stopCounting();
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
      // If the host was suspected meanwhile, it is due already.
      slot.dueAt = Math.min(slot.dueAt, performance.now() + pauseAfter(slot, compared));
      clearTimeout(slow);
      makeRoom();
      if (slot.dueAt === 0) startDue();
    };
    const ended = work().finally(() => running.delete(ended));
    running.add(ended);
    slot.running = ended;
    return ended;
  };
  const startDue = () => {
    if (app.closing.aborted) return;
    const now = performance.now();
    const list = all();
    const first = next;
    for (let step = 0; step < list.length; step++) {
      const index = (first + step) % list.length;
      const slot = list[index];
      if (!slot || slot.running || slot.dueAt > now) continue;
      isFull = atWork >= WIDTH;
      next = index;
      if (isFull) return;
      void run(slot);
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
