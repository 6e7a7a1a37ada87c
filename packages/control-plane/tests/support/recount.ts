// Computes what accounts owe, independently of the service: in TypeScript with BigInt, from the activity feed. The feed
// says what was used, from when and until when. The log of states (state-log.ts) adds what the feed does not have: when
// a machine failed, which disk it began with or left behind, and how large a snapshot is.
import assert from 'node:assert/strict';
import { USAGE_KINDS, type UsageKind } from '@sandbar/contract/billing.ts';
import type { StateChange } from './state-log.ts';

export type Size = { vcpus: number; memory_mb: number; storage_gb: number; snapshot_mb: number };
/** An interval in which a resource was used in one size. Times in milliseconds since 1970. */
export type Use = {
  resourceId: string;
  size: Size;
  metadata: unknown;
  from: number;
  /** Infinity: the use goes on. */
  until: number;
};
export type FeedEntry = { action: string; machine_id: string | null; metadata: Record<string, unknown>; at: number };

const NOTHING: Size = { vcpus: 0, memory_mb: 0, storage_gb: 0, snapshot_mb: 0 };
const MIB = 1_048_576;

/** The uses of one account, in the order of their beginnings. */
export function usesOf(feed: readonly FeedEntry[], changes: readonly StateChange[]): Use[] {
  const uses: Use[] = [];
  const open = new Map<string, Use>();
  const sizes = new Map<string, Size>();
  const rows = new Rows(changes);

  const end = (resourceId: string, at: number) => {
    const use = open.get(resourceId);
    assert(use, `${resourceId} ended, but was not in use`);
    use.until = at;
    open.delete(resourceId);
  };
  const begin = (resourceId: string, size: Size, at: number, metadata: unknown = {}) => {
    assert(!open.has(resourceId), `${resourceId} began, but was in use already`);
    const use = { resourceId, size, metadata, from: at, until: Number.POSITIVE_INFINITY };
    open.set(resourceId, use);
    uses.push(use);
  };
  const sizeOf = (machineId: string): Size => {
    const size = sizes.get(machineId);
    assert(size, `machine ${machineId} did something before it was created`);
    return size;
  };
  const switchTo = (machineId: string, size: Size, at: number) => {
    end(machineId, at);
    begin(machineId, size, at, rows.machineAt(machineId, at).metadata);
  };

  for (const { action, machine_id, metadata, at } of [...feed, ...failures(changes)].sort((a, b) => a.at - b.at)) {
    const machineId = machine_id ?? '';
    if (action === 'machine.created') {
      const { vcpus, memory_mb, rootfs_gb } = metadata as Record<string, number>;
      const size = { ...NOTHING, vcpus: Number(vcpus), memory_mb: Number(memory_mb), storage_gb: Number(rootfs_gb) };
      sizes.set(machineId, size);
      // A kept disk that the machine booted from is the machine's own disk from now on.
      const taken = rows.sourceOf(machineId);
      if (typeof taken === 'string') end(taken, at);
      begin(machineId, size, at, rows.machineAt(machineId, at).metadata);
    } else if (action === 'machine.started') switchTo(machineId, sizeOf(machineId), at);
    else if (action === 'machine.stopped') {
      switchTo(machineId, { ...NOTHING, storage_gb: sizeOf(machineId).storage_gb }, at);
    } else if (action === 'machine.failed') {
      if (open.has(machineId)) end(machineId, at);
    } else if (action === 'machine.destroyed') {
      if (open.has(machineId)) end(machineId, at);
      const kept = metadata.preserve_storage ? rows.keptDiskOf(machineId) : undefined;
      // A machine that never ran returns the volume that it was to boot from, which was in use all the time. If there
      // was no such volume, its new disk is kept, though the feed never had an entry of the machine's creation.
      if (kept !== undefined && !open.has(kept.id)) {
        begin(kept.id, { ...NOTHING, storage_gb: kept.sizeGb }, at);
      }
    } else if (action === 'volume.created') {
      begin(String(metadata.volume_id), { ...NOTHING, storage_gb: Number(metadata.size_gb) }, at);
    } else if (action === 'volume.deleted') end(String(metadata.volume_id), at);
    else if (action === 'snapshot.created') {
      const id = String(metadata.snapshot_id);
      begin(id, { ...NOTHING, snapshot_mb: Math.ceil(rows.storedBytesOf(id) / MIB) }, at);
    } else if (action === 'snapshot.deleted') end(String(metadata.snapshot_id), at);
  }
  return uses;
}

/** The failures of machines, which the feed does not have. */
const failures = (changes: readonly StateChange[]): FeedEntry[] =>
  changes
    .filter(({ table_name, after }) => table_name === 'machines' && after?.state === 'error')
    .map(({ row_id, at }) => ({ action: 'machine.failed', machine_id: row_id, metadata: {}, at: at.getTime() }));

/** Looks up rows as they were, in the log of states. */
class Rows {
  readonly #changes: readonly StateChange[];
  constructor(changes: readonly StateChange[]) {
    this.#changes = changes;
  }

  #find(id: string, what: string, matches: (change: StateChange) => boolean): Record<string, unknown> {
    const found = this.#changes.find((change) => change.row_id === id && matches(change))?.after;
    assert(found, `the log of states has ${what} ${id}`);
    return found;
  }

  machineAt = (id: string, at: number) => this.#find(id, 'the change of', (change) => change.at.getTime() === at);
  /** The kept disk that the machine was to boot from. */
  sourceOf = (id: string) => this.#find(id, 'the insert of', ({ before }) => before === null).root_volume_id;
  keptDiskOf = (id: string) => {
    const row = this.#find(id, 'the end of', ({ after }) => after?.state === 'destroyed');
    return { id: String(row.root_volume_id), sizeGb: Number(row.rootfs_size_gb) };
  };
  storedBytesOf = (id: string) =>
    Number(this.#find(id, 'the ready', ({ after }) => after?.state === 'ready').stored_bytes);
}

/** A part of a use at one price. */
export type Part = { size: Size; prices: PriceList; from: number; until: number };
export type PriceList = {
  vcpu_hour_micros: number;
  memory_gib_hour_micros: number;
  storage_gib_hour_micros: number;
  snapshot_gib_hour_micros: number;
};
export type Sums = Record<UsageKind, bigint>;

/** For each kind: its quantity, its price, and how much of the quantity makes one priced unit. */
const COSTS: Record<UsageKind, (part: Part) => [quantity: number, price: number, perUnit: bigint]> = {
  vcpu: ({ size, prices }) => [size.vcpus, prices.vcpu_hour_micros, 1n],
  memory: ({ size, prices }) => [size.memory_mb, prices.memory_gib_hour_micros, 1024n],
  storage: ({ size, prices }) => [size.storage_gb, prices.storage_gib_hour_micros, 1n],
  snapshot: ({ size, prices }) => [size.snapshot_mb, prices.snapshot_gib_hour_micros, 1024n],
};

/** What parts have cost up to an instant, in micro-euro. Each kind of each part is rounded down. */
export function costUntil(parts: readonly Part[], instant: number): Sums {
  const sums: Sums = { vcpu: 0n, memory: 0n, storage: 0n, snapshot: 0n };
  for (const part of parts) {
    const ms = BigInt(Math.max(0, Math.min(part.until, instant) - part.from));
    for (const kind of USAGE_KINDS) {
      const [quantity, price, perUnit] = COSTS[kind](part);
      sums[kind] += (BigInt(price) * BigInt(quantity) * ms) / (perUnit * 3_600_000n);
    }
  }
  return sums;
}
export const total = (sums: Sums): bigint => USAGE_KINDS.reduce((sum, kind) => sum + sums[kind], 0n);
