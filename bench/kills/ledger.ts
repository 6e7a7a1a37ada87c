// How often each entry may be in the activity feed. An act that the service acknowledged has one entry. An act whose
// answer nobody got has an entry or none, and a repeated act that is not idempotent may have one for each attempt.
import type { ActivityEntry } from '@sandbar/contract/activity.ts';

export type Expected = { least: number; most: number; metadata: Record<string, unknown> };

/** Identifies what an entry is about. The clients give each job a time-out of its own, because the feed names no job. */
export function keyOf({
  action,
  machine_id,
  metadata,
}: Pick<ActivityEntry, 'action' | 'machine_id' | 'metadata'>): string {
  const { volume_id, snapshot_id, timeout_sec } = metadata;
  return [action, machine_id, volume_id ?? snapshot_id ?? timeout_sec].filter((part) => part !== undefined).join(' ');
}

export class Ledger {
  readonly #expected = new Map<string, Expected>();
  /** Ids of machines and volumes whose state a client could not follow, because the service contradicted it. */
  readonly #doubtful = new Set<string>();

  get expected(): ReadonlyMap<string, Expected> {
    return this.#expected;
  }

  /** An act is asked for: from now on `times` entries are possible. */
  allow(key: string, times = 1): void {
    this.#of(key).most += times;
  }

  /** The act was acknowledged: its entry is necessary, and must have this metadata. */
  acknowledge(key: string, metadata: Record<string, unknown> = {}): void {
    const expected = this.#of(key);
    expected.least += 1;
    Object.assign(expected.metadata, metadata);
  }

  /** An act that was asked for and acknowledged. */
  require(key: string, metadata: Record<string, unknown> = {}): void {
    this.allow(key);
    this.acknowledge(key, metadata);
  }

  /** Accepts any entry about this id. */
  doubt(id: string): void {
    this.#doubtful.add(id);
  }

  isDoubtful(key: string): boolean {
    return key.split(' ').some((part) => this.#doubtful.has(part));
  }

  #of(key: string): Expected {
    const expected = this.#expected.get(key) ?? { least: 0, most: 0, metadata: {} };
    this.#expected.set(key, expected);
    return expected;
  }
}
