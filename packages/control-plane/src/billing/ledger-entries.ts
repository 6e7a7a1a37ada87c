// Reads the entries of a wallet's ledger, newest first, and the lines of a charge.
import {
  LEDGER_PAGE,
  type LedgerDetails,
  type LedgerEntry,
  type LedgerList,
  type LedgerQuery,
} from '@sandbar/contract/billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Selectable } from 'kysely';
import { readRange } from '../activity/range.ts';
import type { App } from '../app.ts';
import type { LedgerTable } from '../db/billing-tables.ts';
import { fetchPage, readPage } from '../paging.ts';
import { readChargeLines } from './charge-lines.ts';
import { formatEur } from './money.ts';

const COLUMNS = [
  ...(['id', 'kind', 'amount_micros', 'balance_micros', 'charged_from', 'charged_to', 'reference', 'note'] as const),
  ...(['sales_vcpu_micros', 'sales_memory_micros', 'sales_storage_micros', 'sales_snapshot_micros'] as const),
  'created_at',
] as const;

/** A page of an account's ledger. Throws `validation_error` for a bad cursor, or `to` before `from`. */
export async function listLedger(app: App, accountId: string, query: LedgerQuery): Promise<LedgerList> {
  const { from, to } = readRange(query);
  const key = ['ledger', accountId, query.kind, query.from, query.to];
  const page = readPage(app.config.secret, { page_size: LEDGER_PAGE.default, ...query }, key);
  let select = app.db.selectFrom('ledger').select(COLUMNS).where('account_id', '=', accountId);
  if (query.kind !== undefined) select = select.where('kind', '=', query.kind);
  if (from) select = select.where('created_at', '>=', from);
  if (to) select = select.where('created_at', '<=', to);
  const { rows, cursor } = await fetchPage(app.config.secret, select, page, key);
  return { entries: rows.map(toEntry), next_cursor: cursor.next_cursor ?? '' };
}

/** One entry of an account's ledger with its lines. Throws `not_found`, also for an entry of another account. */
export async function getLedgerEntry(app: App, accountId: string, id: string): Promise<LedgerDetails> {
  const row = await app.db
    .selectFrom('ledger')
    .select(COLUMNS)
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  if (!row) throw new ServiceError('not_found', 'There is no such ledger entry.');
  return { ...toEntry(row), lines: row.kind === 'charge' ? await readChargeLines(app.db, id) : [] };
}

type Row = Pick<Selectable<LedgerTable>, (typeof COLUMNS)[number]>;

const toEntry = (row: Row): LedgerEntry => ({
  id: row.id,
  kind: row.kind,
  amount: formatEur(row.amount_micros),
  balance: formatEur(row.balance_micros),
  by_kind:
    row.kind === 'charge'
      ? {
          vcpu: formatEur(row.sales_vcpu_micros),
          memory: formatEur(row.sales_memory_micros),
          storage: formatEur(row.sales_storage_micros),
          snapshot: formatEur(row.sales_snapshot_micros),
        }
      : null,
  charged_from: row.charged_from?.toISOString() ?? null,
  charged_to: row.charged_to?.toISOString() ?? null,
  reference: row.reference,
  note: row.note,
  created_at: row.created_at.toISOString(),
});
