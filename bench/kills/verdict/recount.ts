// Computes from its activity feed what an account has used and what that costs, independently of the service: in
// TypeScript with BigInt, while the service computes it in SQL. Pure functions.
import { USAGE_KINDS, type UsageKind } from '@sandbar/contract/billing.ts';

export type Size = { vcpus: number; memory_mb: number; storage_gb: number; snapshot_mb: number };
/**
 * An interval in which a resource was used in one size, in milliseconds since 1970. `until`: Infinity while it goes on.
 */
export type Use = { resourceId: string; size: Size; from: number; until: number };
export type FeedEntry = {
  action: string;
  actor: string;
  machine_id: string | null;
  metadata: Record<string, unknown>;
  at: number;
};
export type Prices = Record<UsageKind, bigint>;
export type Sums = Record<UsageKind, bigint>;

/** What the feed leaves out. */
export type Unsaid = {
  /** The disk that a destroyed machine left behind. */
  keptDiskOf(machineId: string): string | null;
  /** When the kept disk became the disk of a new machine; undefined when it did not. */
  takenAt(diskId: string): number | undefined;
  /** When the machine failed, which the feed does not have; undefined when it did not fail. */
  failedAt(machineId: string): number | undefined;
  snapshotMb(snapshotId: string): number;
};

const NOTHING: Size = { vcpus: 0, memory_mb: 0, storage_gb: 0, snapshot_mb: 0 };

/** Returns the uses that the feed of an account tells, oldest entry first. Throws when the feed contradicts itself. */
export function usesOf(feed: readonly FeedEntry[], unsaid: Unsaid): Use[] {
  const uses = new OpenUses();
  const machines = new Map<string, Size>();
  for (const { action, machine_id, metadata, at } of feed) {
    const id = machine_id ?? '';
    const disk = { ...NOTHING, storage_gb: machines.get(id)?.storage_gb ?? 0 };
    switch (action) {
      case 'machine.created': {
        const [vcpus, memory_mb, storage_gb] = ['vcpus', 'memory_mb', 'rootfs_gb'].map((name) =>
          Number(metadata[name]),
        ) as [number, number, number];
        machines.set(id, { ...NOTHING, vcpus, memory_mb, storage_gb });
        uses.begin(id, machines.get(id) ?? NOTHING, at);
        break;
      }
      case 'machine.started':
        uses.end(id, at);
        uses.begin(id, machines.get(id) ?? NOTHING, at);
        break;
      case 'machine.stopped':
        uses.end(id, at);
        uses.begin(id, disk, at);
        break;
      case 'machine.destroyed': {
        uses.end(id, Math.min(at, unsaid.failedAt(id) ?? at));
        const kept = metadata.preserve_storage === true ? unsaid.keptDiskOf(id) : null;
        if (kept !== null) uses.begin(kept, disk, at);
        break;
      }
      case 'volume.created':
        uses.begin(String(metadata.volume_id), { ...NOTHING, storage_gb: Number(metadata.size_gb) }, at);
        break;
      case 'snapshot.created': {
        const snapshotId = String(metadata.snapshot_id);
        uses.begin(snapshotId, { ...NOTHING, snapshot_mb: unsaid.snapshotMb(snapshotId) }, at);
        break;
      }
      case 'volume.deleted':
      case 'snapshot.deleted':
        uses.end(String(metadata.volume_id ?? metadata.snapshot_id), at);
    }
  }
  for (const { resourceId } of uses.open()) {
    const ended = unsaid.takenAt(resourceId) ?? unsaid.failedAt(resourceId);
    if (ended !== undefined) uses.end(resourceId, ended);
  }
  return uses.all;
}

class OpenUses {
  readonly all: Use[] = [];
  readonly #open = new Map<string, Use>();

  begin(resourceId: string, size: Size, from: number): void {
    if (this.#open.has(resourceId)) throw new Error(`the feed begins ${resourceId} at ${from} a second time`);
    const use = { resourceId, size, from, until: Number.POSITIVE_INFINITY };
    this.all.push(use);
    this.#open.set(resourceId, use);
  }

  end(resourceId: string, until: number): void {
    const use = this.#open.get(resourceId);
    if (use === undefined) throw new Error(`the feed ends ${resourceId} at ${until}, which it never began`);
    use.until = until;
    this.#open.delete(resourceId);
  }

  open(): Use[] {
    return [...this.#open.values()];
  }
}

const HOUR_MS = 3_600_000n;
/** For each kind of usage: its quantity in a size, and how much of it the price is for, such as 1024 MB of memory. */
const QUANTITIES: Record<UsageKind, [of: (size: Size) => number, perUnit: bigint]> = {
  vcpu: [({ vcpus }) => vcpus, 1n],
  memory: [({ memory_mb }) => memory_mb, 1024n],
  storage: [({ storage_gb }) => storage_gb, 1n],
  snapshot: [({ snapshot_mb }) => snapshot_mb, 1024n],
};

/** What the uses have cost up to an instant, micro-euro. Each kind of each use is rounded down. */
export function costUntil(uses: readonly Use[], instant: number, prices: Prices): Sums {
  const sums: Sums = { vcpu: 0n, memory: 0n, storage: 0n, snapshot: 0n };
  for (const { size, from, until } of uses) {
    const ms = BigInt(Math.max(0, Math.min(until, instant) - from));
    for (const kind of USAGE_KINDS) {
      const [quantityIn, perUnit] = QUANTITIES[kind];
      sums[kind] += (prices[kind] * BigInt(quantityIn(size)) * ms) / (perUnit * HOUR_MS);
    }
  }
  return sums;
}
