// The activity feed of the account: what was done, by whom and when.
import type { ActivityEntry, ActivityList, ActivityQuery } from '@sandbar/contract/activity.ts';
import type { CallOptions } from './call-options.ts';
import { machinePath } from './machines.ts';
import { sleep } from './retry.ts';
import type { Transport } from './transport.ts';

/** Which entries of the feed to read. With `machineId`: only the entries of that machine. */
export type ActivityFilter = Omit<ActivityQuery, 'cursor' | 'page_size'> & { machineId?: string | undefined };

export type PageOptions = CallOptions & {
  /** At most 200. */
  pageSize?: number | undefined;
  /** `next_cursor` of the previous page. */
  cursor?: string | undefined;
};

/** The largest page that the service returns. */
const MAX_PAGE_SIZE = 200;
/** How long `follow` waits between two requests for new entries, ms. */
const FOLLOW_MS = 1_000;

export class Activity {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Yields the entries of the feed, newest first. It fetches pages as you iterate, so stop when you have enough. */
  async *list(filter: ActivityFilter = {}, call: CallOptions = {}): AsyncGenerator<ActivityEntry> {
    let cursor: string | undefined;
    do {
      const page: ActivityList = await this.page(filter, { ...call, cursor });
      yield* page.activity;
      cursor = page.next_cursor;
    } while (cursor !== '');
  }

  /** One page of the feed, newest entries first. The last page has an empty `next_cursor`. */
  page(filter: ActivityFilter = {}, options: PageOptions = {}): Promise<ActivityList> {
    const { pageSize = MAX_PAGE_SIZE, cursor, ...call } = options;
    const { machineId, ...rest } = filter;
    const path = machineId === undefined ? '/v1/activity' : `${machinePath(machineId)}/activity`;
    const query = { ...rest, page_size: Math.min(pageSize, MAX_PAGE_SIZE), cursor };
    return this.#transport.json('GET', path, { ...call, query });
  }

  /**
   * Yields new entries as they are written, oldest first. It asks the service every second. An abort of `signal` ends it
   * and throws the signal's reason.
   */
  async *follow(filter: ActivityFilter = {}, call: CallOptions = {}): AsyncGenerator<ActivityEntry> {
    let seen = byKey((await this.page(filter, call)).activity);
    for (;;) {
      await sleep(FOLLOW_MS, call.signal);
      const newest = await this.#newest(seen, filter, call);
      for (const [key, entry] of [...newest].reverse()) if (!seen.has(key)) yield entry;
      seen = newest;
    }
  }

  /** Reads pages, newest entries first, until a page has an entry of `seen` or there are no more pages. */
  async #newest(seen: Entries, filter: ActivityFilter, call: CallOptions): Promise<Entries> {
    const entries: ActivityEntry[] = [];
    let cursor: string | undefined;
    for (;;) {
      const page = await this.page(filter, { ...call, cursor });
      entries.push(...page.activity);
      cursor = page.next_cursor;
      if (cursor === '' || [...byKey(entries).keys()].some((key) => seen.has(key))) return byKey(entries);
    }
  }
}

type Entries = ReadonlyMap<string, ActivityEntry>;

/**
 * Gives each entry a unique key, and keeps the order: newest first. Entries have no id, so the key is the content and a
 * number that tells entries of equal content apart. The oldest of these has number 1, so a new entry does not change
 * the keys of older entries.
 */
function byKey(entries: readonly ActivityEntry[]): Entries {
  const counts = new Map<string, number>();
  const keyed = [...entries].reverse().map((entry): [string, ActivityEntry] => {
    const content = JSON.stringify(entry);
    const count = (counts.get(content) ?? 0) + 1;
    counts.set(content, count);
    return [`${count} ${content}`, entry];
  });
  return new Map(keyed.reverse());
}
