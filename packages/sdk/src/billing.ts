// What the account used and what that cost, and the ledger of its wallet.
import type {
  LedgerDetails,
  LedgerEntry,
  LedgerList,
  LedgerQuery,
  Usage,
  UsageQuery,
} from '@sandbar/contract/billing.ts';
import type { CallOptions } from './call-options.ts';
import type { Transport } from './transport.ts';

/** Which usage to report. Times are RFC 3339. Default: this month (UTC) until now, grouped by kind. */
export type UsageFilter = {
  from?: string;
  /** The end of the range, exclusive. */
  to?: string;
  groupBy?: NonNullable<UsageQuery['group_by']>;
  machineId?: string;
};
export type LedgerFilter = Omit<LedgerQuery, 'cursor' | 'page_size'>;

/** The largest page that the service returns. */
const MAX_PAGE_SIZE = 1000;

export class Billing {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** What was used and what that cost. Amounts are EUR as text, because a floating-point number would round them. */
  usage(filter: UsageFilter = {}, call: CallOptions = {}): Promise<Usage> {
    return this.#transport.json('GET', '/v1/billing/usage', { ...call, query: usageQuery(filter) });
  }

  /** The items of `usage` as CSV with a header row. */
  usageCsv(filter: UsageFilter = {}, call: CallOptions = {}): Promise<string> {
    const headers = { accept: 'text/csv' };
    return this.#transport.text('GET', '/v1/billing/usage', { ...call, query: usageQuery(filter), headers });
  }

  /** Yields the entries of the ledger, newest first. It fetches pages as you iterate, so stop when you have enough. */
  async *ledger(filter: LedgerFilter = {}, call: CallOptions = {}): AsyncGenerator<LedgerEntry> {
    let cursor: string | undefined;
    do {
      const page: LedgerList = await this.ledgerPage(filter, { ...call, cursor });
      yield* page.entries;
      cursor = page.next_cursor;
    } while (cursor !== '');
  }

  /**
   * One page of the ledger, newest entries first. `pageSize` is at most 1000 (default 1000). `cursor` is the
   * `next_cursor` of the previous page; the last page has an empty `next_cursor`.
   */
  ledgerPage(
    filter: LedgerFilter = {},
    options: CallOptions & { pageSize?: number; cursor?: string | undefined } = {},
  ): Promise<LedgerList> {
    const { pageSize = MAX_PAGE_SIZE, cursor, ...call } = options;
    const query = { ...filter, page_size: Math.min(pageSize, MAX_PAGE_SIZE), cursor };
    return this.#transport.json('GET', '/v1/billing/ledger', { ...call, query });
  }

  /** One entry of the ledger. If it is a charge, it includes the lines of the charge. Throws `not_found` for an unknown id. */
  entry(id: string, call: CallOptions = {}): Promise<LedgerDetails> {
    return this.#transport.json('GET', `/v1/billing/ledger/${encodeURIComponent(id)}`, call);
  }
}

const usageQuery = ({ from, to, groupBy, machineId }: UsageFilter) => ({
  ...{ from, to },
  group_by: groupBy,
  machine_id: machineId,
});
