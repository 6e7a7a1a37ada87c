// Counts how often each entry may be in the activity feed. An acknowledged operation has exactly one entry. An
// operation whose answer was lost has one entry or none. A repeated operation that is not idempotent may have one entry
// for each attempt.
import type { ActivityEntry } from '@sandbar/contract/activity.ts';

export type Expected = { least: number; most: number; metadata: Record<string, unknown> };

/**
 * Returns a key for an entry of the feed. The feed does not name jobs, so the clients give each job a different
 * time-out.
 */
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
  /**
   * Ids of machines and volumes whose state a client does not know, because the service gave it an inexplicable answer.
   */
  readonly #doubtful = new Set<string>();

  get expected(): ReadonlyMap<string, Expected> {
    return this.#expected;
  }

  /** Call it when a client requests an operation: up to `times` more entries are allowed. */
  allow(key: string, times = 1): void {
    this.#of(key).most += times;
  }

  /** Call it when the service acknowledged an operation: the feed must have its entry, with this metadata. */
  acknowledge(key: string, metadata: Record<string, unknown> = {}): void {
    const expected = this.#of(key);
    expected.least += 1;
    Object.assign(expected.metadata, metadata);
  }

  /** Requires one more entry in the feed. Call it for an operation that was requested and acknowledged. */
  require(key: string, metadata: Record<string, unknown> = {}): void {
    this.allow(key);
    this.acknowledge(key, metadata);
  }

  /** From now on, accepts any entry about this machine or volume. */
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
