// Runs one rule on a fleet: machines arrive at two replicas and end again. Each replica knows the hosts as they were at
// its last look, up to a second ago, and its own reservations since then. The rows decide, as the UPDATE does.
import { hasRoomFor, type Overcommit, type Room } from '@sandbar/control-plane/hosts/room.ts';
import { drawArrival, makeHosts, type SimulatedHost, seeded } from './fleet.ts';
import type { Rule } from './rules.ts';

export type Settings = {
  hosts: number;
  arrivalsPerSec: number;
  /** Simulated seconds; those up to `settledSec` are not counted, because the fleet fills up first. */
  seconds: number;
  settledSec: number;
  overcommit: Overcommit;
  refreshSec: number;
  seed: number;
};

export type Outcome = {
  placed: number;
  /** Reservations that the row of the host refused. */
  conflicts: number;
  refused: number;
  /** Refused machines by their memory in MiB. */
  refusedBySize: Map<number, number>;
  /** The share of the fleet's memory that was reserved when a machine was refused, on average. */
  usedAtRefusal: number;
  /** Machines that were there at the end. */
  machines: number;
  /** Shares of the hosts' fullest resource at the end: mean and standard deviation. */
  meanShare: number;
  spread: number;
  /** Most reservations of one host within 100 ms. */
  mostOnOneHost: number;
  /** Times of decisions in milliseconds. */
  decisionMs: number[];
};

type Replica = { hosts: SimulatedHost[]; readAt: number };

export function simulate(rule: Rule, settings: Settings, shareOf: (host: SimulatedHost) => number): Outcome {
  const { overcommit, arrivalsPerSec, seconds, settledSec, refreshSec } = settings;
  const random = seeded(settings.seed);
  const rows = makeHosts(settings.hosts);
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const replicas: Replica[] = [0, 0.5].map((offset) => readRows(rows, offset * refreshSec - refreshSec));
  const ends = new Ends();
  const totalMb = rows.reduce((sum, row) => sum + row.memory_mb, 0) * overcommit.memory;
  let reservedMb = 0;
  let usedAtRefusal = 0;
  const recent = new Map<string, number>();
  let recentUntil = 0;
  const outcome: Outcome = {
    ...{ placed: 0, conflicts: 0, refused: 0, refusedBySize: new Map(), usedAtRefusal: 0, machines: 0 },
    ...{ meanShare: 0, spread: 0, mostOnOneHost: 0, decisionMs: [] },
  };
  const step = 1 / arrivalsPerSec;
  for (let now = 0, turn = 0; now < seconds; now += step, turn++) {
    const isCounted = now >= settledSec;
    for (let ended = ends.next(now); ended; ended = ends.next(now)) {
      add(rowOf.get(ended.hostId) as SimulatedHost, ended.room, -1);
      reservedMb -= ended.room.memoryMb;
    }
    const { room, lifetimeSec } = drawArrival(random);
    let replica = replicas[turn % 2] as Replica;
    if (now - replica.readAt >= refreshSec) {
      replica = readRows(rows, now);
      replicas[turn % 2] = replica;
    }
    if (now >= recentUntil) {
      if (isCounted) outcome.mostOnOneHost = Math.max(outcome.mostOnOneHost, ...recent.values());
      recent.clear();
      recentUntil = now + 0.1;
    }
    let isReread = false;
    for (;;) {
      const began = performance.now();
      const choice = rule(replica.hosts, { room, stack: 'base' }, overcommit, random);
      if (isCounted) outcome.decisionMs.push(performance.now() - began);
      if (choice) {
        add(choice, room, 1);
        const row = rowOf.get(choice.id) as SimulatedHost;
        if (hasRoomFor(row, room, overcommit)) {
          add(row, room, 1);
          reservedMb += room.memoryMb;
          ends.push({ at: now + lifetimeSec, hostId: row.id, room });
          recent.set(row.id, (recent.get(row.id) ?? 0) + 1);
          if (isCounted) outcome.placed++;
          break;
        }
        if (isCounted) outcome.conflicts++;
        choice.isRefusing = true;
      } else if (!isReread) {
        isReread = true;
        replica = readRows(rows, now);
        replicas[turn % 2] = replica;
      } else {
        if (!isCounted) break;
        outcome.refused++;
        outcome.refusedBySize.set(room.memoryMb, (outcome.refusedBySize.get(room.memoryMb) ?? 0) + 1);
        usedAtRefusal += reservedMb / totalMb;
        break;
      }
    }
  }
  outcome.machines = ends.size;
  outcome.usedAtRefusal = outcome.refused === 0 ? 0 : usedAtRefusal / outcome.refused;
  const shares = rows.map(shareOf);
  outcome.meanShare = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  outcome.spread = Math.sqrt(shares.reduce((sum, share) => sum + (share - outcome.meanShare) ** 2, 0) / shares.length);
  return outcome;
}

function readRows(rows: readonly SimulatedHost[], now: number): Replica {
  const hosts = rows.map((row) => ({ ...row, isRefusing: false }));
  return { hosts, readAt: now };
}

function add(host: SimulatedHost, room: Room, sign: 1 | -1): void {
  host.reserved_memory_mb += sign * room.memoryMb;
  host.reserved_vcpus += sign * room.vcpus;
  host.reserved_disk_gb += sign * room.diskGb;
}

type End = { at: number; hostId: string; room: Room };

/** The machines by the time of their end: a binary heap. */
class Ends {
  readonly #heap: End[] = [];
  get size(): number {
    return this.#heap.length;
  }

  push(end: End): void {
    const heap = this.#heap;
    let index = heap.push(end) - 1;
    while (index > 0) {
      const above = (index - 1) >> 1;
      if ((heap[above] as End).at <= end.at) break;
      heap[index] = heap[above] as End;
      index = above;
    }
    heap[index] = end;
  }

  /** Removes and returns the machine that ended first, if that was before `now`. */
  next(now: number): End | undefined {
    const heap = this.#heap;
    const [first] = heap;
    if (!first || first.at > now) return undefined;
    const last = heap.pop() as End;
    if (heap.length === 0) return first;
    let index = 0;
    for (;;) {
      let below = 2 * index + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && (heap[below + 1] as End).at < (heap[below] as End).at) below++;
      if ((heap[below] as End).at >= last.at) break;
      heap[index] = heap[below] as End;
      index = below;
    }
    heap[index] = last;
    return first;
  }
}
