// The account that the key belongs to: its record, its quotas and its activity feed.
import type { Account as AccountRecord } from '@sandbar/contract/account.ts';
import type { ActivityEntry, ActivityList, ActivityQuery } from '@sandbar/contract/activity.ts';
import type { Quotas } from '@sandbar/contract/quota.ts';
import { type CallOptions, machinePath } from './machines.ts';
import type { Transport } from './transport.ts';

/** Which entries of the feed to read; `machineId`: only the entries of this machine. */
export type ActivityFilter = Omit<ActivityQuery, 'cursor' | 'page_size'> & { machineId?: string };

/** The largest page that the service returns. */
const MAX_PAGE_SIZE = 200;

export class Account {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get({ signal }: CallOptions = {}): Promise<AccountRecord> {
    return this.#transport.json('GET', '/v1/account', { signal });
  }

  /** How much the account uses and may use: machines, vcpus, memory, storage and volumes. */
  quotas({ signal }: CallOptions = {}): Promise<Quotas> {
    return this.#transport.json('GET', '/v1/quotas', { signal });
  }

  /** Yields the entries of the feed, newest first. It fetches pages as you iterate, so stop when you have enough. */
  async *activity(filter: ActivityFilter = {}, { signal }: CallOptions = {}): AsyncGenerator<ActivityEntry> {
    let cursor: string | undefined;
    do {
      const page: ActivityList = await this.activityPage(filter, { cursor, signal });
      yield* page.activity;
      cursor = page.next_cursor;
    } while (cursor !== '');
  }

  /**
   * One page of the feed, newest entries first. `pageSize` is at most 200. `cursor` is the `next_cursor` of the
   * previous page; the last page has an empty `next_cursor`.
   */
  activityPage(
    filter: ActivityFilter = {},
    options: CallOptions & { pageSize?: number; cursor?: string | undefined } = {},
  ): Promise<ActivityList> {
    const { pageSize = MAX_PAGE_SIZE, cursor, signal } = options;
    const { machineId, ...rest } = filter;
    const path = machineId === undefined ? '/v1/activity' : `${machinePath(machineId)}/activity`;
    const query = { ...rest, page_size: Math.min(pageSize, MAX_PAGE_SIZE), cursor };
    return this.#transport.json('GET', path, { query, signal });
  }
}
