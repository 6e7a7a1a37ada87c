// The account behind the key: who it is, what it may use, and what was done in it.
import type { Account as AccountRecord } from '@sandbar/contract/account.ts';
import type { ActivityEntry, ActivityList, ActivityQuery } from '@sandbar/contract/activity.ts';
import type { Quotas } from '@sandbar/contract/quota.ts';
import { type CallOptions, machinePath } from './machines.ts';
import type { Transport } from './transport.ts';

/** What of the feed is wanted; `machineId` keeps one machine's entries. */
export type ActivityFilter = Omit<ActivityQuery, 'cursor' | 'page_size'> & { machineId?: string };

const PAGE_SIZE = 200;

export class Account {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get({ signal }: CallOptions = {}): Promise<AccountRecord> {
    return this.#transport.json('GET', '/v1/account', { signal });
  }

  /** Use and limits in the five dimensions. */
  quotas({ signal }: CallOptions = {}): Promise<Quotas> {
    return this.#transport.json('GET', '/v1/quotas', { signal });
  }

  /** The entries of the feed, newest first; pages are fetched as they are needed, so stop when you have enough. */
  async *activity(filter: ActivityFilter = {}, { signal }: CallOptions = {}): AsyncGenerator<ActivityEntry> {
    const { machineId, ...rest } = filter;
    const path = machineId === undefined ? '/v1/activity' : `${machinePath(machineId)}/activity`;
    let cursor: string | undefined;
    do {
      const query = { ...rest, page_size: PAGE_SIZE, cursor };
      const page: ActivityList = await this.#transport.json('GET', path, { query, signal });
      yield* page.activity;
      cursor = page.next_cursor;
    } while (cursor !== '');
  }
}
