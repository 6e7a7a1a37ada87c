// What this replica knows about the hosts, so that a create need not read all their rows. It may be a second old. So it
// only proposes: the UPDATE that reserves room decides, and `withHosts` reads the rows again before it refuses a
// request.
import { isDeepStrictEqual } from 'node:util';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import { sleep } from '../concurrency.ts';
import type { Db } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { HostRow } from '../db/tables.ts';
import type { Room } from './room.ts';

const COLUMNS = [
  'id',
  'isolation',
  'processor',
  'draining',
  'cpus',
  'memory_mb',
  'disk_mb',
  'disk_free_mb',
  'disk_reserve_mb',
  'reserved_memory_mb',
  'reserved_vcpus',
  'reserved_disk_gb',
] as const;

export type HostFacts = Pick<HostRow, (typeof COLUMNS)[number] | 'images' | 'templates'> & {
  /** A reservation was refused since the host's row was read, so the row is out of date. */
  isRefusing: boolean;
};

/**
 * After a reading, the next one waits for this many times the time that the reading took. So readings take at most a
 * tenth of the time, however many requests the fleet refuses.
 */
const REST = 9;
/** The longest such pause, in milliseconds. */
const LONGEST_REST_MS = 200;

export class HostTable {
  readonly #db: Db;
  readonly #maxAgeMs: number;
  #hosts: readonly HostFacts[] = [];
  /** When the last reading began, in milliseconds of `performance.now()`. */
  #readAt = Number.NEGATIVE_INFINITY;
  #expiredAt = Number.NEGATIVE_INFINITY;
  #restUntil = 0;
  /** A reading that has not begun yet. It sees everything that is committed now. */
  #next: Promise<void> | undefined;
  #last: Promise<void> = Promise.resolve();
  /** What the JSON of the last reading contained, by its text: most hosts have the same images and templates. */
  #parsed = new Map<string, unknown>();

  /** `maxAgeMs`: how old the facts that `read` returns may be, in milliseconds. */
  constructor(db: Db, maxAgeMs: number) {
    this.#db = db;
    this.#maxAgeMs = maxAgeMs;
  }

  /** All hosts of the fleet, as they were at the last reading, with the reservations of this replica since then. */
  get hosts(): readonly HostFacts[] {
    return this.#hosts;
  }

  /**
   * Returns facts that are at most `maxAgeMs` old. Must not be called in a transaction: it would hold a connection
   * while it waits for another one.
   */
  async read(): Promise<readonly HostFacts[]> {
    const isFresh = performance.now() - this.#readAt <= this.#maxAgeMs && this.#readAt > this.#expiredAt;
    return isFresh ? this.#hosts : this.readAgain();
  }

  /** Reads the rows again. Everything that was committed before the call is seen. Parallel calls share one reading. */
  async readAgain(): Promise<readonly HostFacts[]> {
    this.#next ??= this.#readNext();
    await this.#next;
    return this.#hosts;
  }

  /** Makes the next `read` read the rows again. For changes of rows by this replica. */
  expire(): void {
    this.#expiredAt = performance.now();
  }

  /**
   * The same, if the agent of a host reports something new that decides what can be placed there. Agents are asked all
   * the time, so in a large fleet the table would otherwise be read several times a second.
   */
  expireIfChanged(info: HostInfo): void {
    const host = this.#hosts.find(({ id }) => id === info.host_id);
    if (!host || !isAsReported(host, info)) this.expire();
  }

  /** Adds a reservation of this replica before the next reading sees it. */
  addReservation(host: HostFacts, { memoryMb, vcpus, diskGb }: Room): void {
    host.reserved_memory_mb += memoryMb;
    host.reserved_vcpus += vcpus;
    host.reserved_disk_gb += diskGb;
  }

  /** Leaves a host out until the next reading, because it refused a reservation that seemed to fit. */
  addRefusal(hostId: string): void {
    const host = this.#hosts.find(({ id }) => id === hostId);
    if (host) host.isRefusing = true;
  }

  #readNext(): Promise<void> {
    const previous = this.#last;
    const reading = (async () => {
      await previous;
      const restMs = this.#restUntil - performance.now();
      // A timer of 0 ms fires after one millisecond.
      if (restMs > 0) await sleep(restMs);
      // Callers that come from here on need another reading: this one may not see what they have committed.
      this.#next = undefined;
      await this.#readNow();
    })();
    this.#last = reading.catch(() => undefined);
    return reading;
  }

  async #readNow(): Promise<void> {
    const began = performance.now();
    try {
      const rows = await selectFacts(this.#db);
      const parsed = new Map<string, unknown>();
      const parse = <T>(text: string): T => {
        const value = parsed.get(text) ?? this.#parsed.get(text) ?? JSON.parse(text);
        parsed.set(text, value);
        return value;
      };
      this.#hosts = rows.map((row) => ({
        ...row,
        images: parse<HostRow['images']>(row.images),
        templates: parse<HostRow['templates']>(row.templates),
        isRefusing: false,
      }));
      this.#parsed = parsed;
      this.#readAt = began;
    } finally {
      const tookMs = performance.now() - began;
      this.#restUntil = began + tookMs + Math.min(tookMs * REST, LONGEST_REST_MS);
    }
  }
}

/**
 * Whether the table has what the agent reports. Of the free disk space, only whether it is down to the reserve counts.
 */
function isAsReported(
  host: HostFacts,
  { isolation, cpus, memory_mb, disk, images, templates = [] }: HostInfo,
): boolean {
  return (
    host.isolation === isolation &&
    host.cpus === cpus &&
    host.memory_mb === memory_mb &&
    host.disk_mb === disk.total_mb &&
    host.disk_reserve_mb === disk.reserve_mb &&
    host.disk_free_mb <= host.disk_reserve_mb === disk.free_mb <= disk.reserve_mb &&
    isDeepStrictEqual(host.images, images) &&
    isDeepStrictEqual(host.templates, templates)
  );
}

// JSON comes as text, because parsing the same images for each of a thousand hosts would take most of the time. A host
// that has joined has no processors in its row until its agent first reports them. It can take nothing until then, and
// must not count as the largest host.
const selectFacts = statement((db) =>
  db
    .selectFrom('hosts')
    .select(COLUMNS)
    .select([sql<string>`images::text`.as('images'), sql<string>`templates::text`.as('templates')])
    .where('removed_at', 'is', null)
    .where('cpus', '>', 0)
    .orderBy('created_at')
    .orderBy('id'),
);
