// Reads the wallet of an account from the service's database: its ledger, meters and feed, all of one moment.
import pg from 'pg';
import type { FeedEntry, Prices, Size } from './recount.ts';

export type LedgerRow = {
  kind: string;
  amount: bigint;
  /** What the row adds to the wallet and to all other books; they must sum to zero. */
  books: bigint[];
  /** The four books of sales. */
  sales: Prices;
  /** The wallet after the row. */
  balance: bigint;
  reference: string | null;
  chargedTo: number | undefined;
  at: number;
};
export type Meter = { resourceId: string; kind: string; size: Size; priceId: number; from: number; until: number };

export type Books = {
  balance: bigint;
  chargedUntil: number;
  ledger: LedgerRow[];
  meters: Meter[];
  feed: FeedEntry[];
  /** The root volumes of destroyed machines, by the machines' ids. */
  keptDisks: Map<string, string>;
  /** The newest price list. */
  priceId: number;
  prices: Prices;
};

type Row = Record<string, string>;

/** Throws when the database does not answer. */
export async function readBooks(databaseUrl: string, accountId: string): Promise<Books> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    await client.query('begin isolation level repeatable read read only');
    const rows = async (text: string) => (await client.query<Row>(text, [accountId])).rows;
    const ms = (column: string) => `(extract(epoch from ${column}) * 1000)::text as ${column}`;
    const [account] = await rows(`select balance_micros, ${ms('charged_until')} from accounts where id = $1`);
    const ledger = await rows(
      `select *, ${ms('charged_to')}, ${ms('created_at')} from ledger where account_id = $1 order by ledger.created_at`,
    );
    const meters = await rows(
      `select *, ${ms('started_at')}, ${ms('ended_at')} from meters where account_id = $1 order by id`,
    );
    const feed = await client.query<Row & { metadata: Record<string, unknown> }>(
      `select *, ${ms('created_at')} from activity where account_id = $1 order by activity.created_at`,
      [accountId],
    );
    const machines = await rows(
      `select id, root_volume_id from machines where account_id = $1 and state = 'destroyed' and root_volume_id is not null`,
    );
    const prices = (await client.query<Row>('select * from prices order by id desc limit 1')).rows[0];
    if (account === undefined || prices === undefined) throw new Error(`there is no account ${accountId}`);
    return {
      balance: BigInt(account.balance_micros ?? ''),
      chargedUntil: Number(account.charged_until),
      ledger: ledger.map(toLedgerRow),
      meters: meters.map(toMeter),
      feed: feed.rows.map(({ action = '', actor = '', machine_id = null, metadata, created_at }) => ({
        ...{ action, actor, machine_id, metadata },
        at: Number(created_at),
      })),
      keptDisks: new Map(machines.map(({ id = '', root_volume_id = '' }) => [id, root_volume_id])),
      priceId: Number(prices.id),
      prices: {
        vcpu: BigInt(prices.vcpu_hour_micros ?? ''),
        memory: BigInt(prices.memory_gib_hour_micros ?? ''),
        storage: BigInt(prices.storage_gib_hour_micros ?? ''),
        snapshot: BigInt(prices.snapshot_gib_hour_micros ?? ''),
      },
    };
  } finally {
    await client.end();
  }
}

function toLedgerRow(row: Row): LedgerRow {
  const micros = (name: string) => BigInt(row[`${name}_micros`] ?? '');
  const sales = {
    vcpu: micros('sales_vcpu'),
    memory: micros('sales_memory'),
    storage: micros('sales_storage'),
    snapshot: micros('sales_snapshot'),
  };
  const { kind = '', reference = null, charged_to, created_at } = row;
  return {
    kind,
    amount: micros('amount'),
    books: [micros('amount'), micros('payments'), micros('bonuses'), micros('corrections'), ...Object.values(sales)],
    sales,
    balance: micros('balance'),
    reference,
    chargedTo: charged_to === null ? undefined : Number(charged_to),
    at: Number(created_at),
  };
}

const toMeter = (row: Row): Meter => ({
  resourceId: row.resource_id ?? '',
  kind: row.resource_kind ?? '',
  size: {
    vcpus: Number(row.vcpus),
    memory_mb: Number(row.memory_mb),
    storage_gb: Number(row.storage_gb),
    snapshot_mb: Number(row.snapshot_mb),
  },
  priceId: Number(row.price_id),
  from: Number(row.started_at),
  until: Number(row.ended_at),
});
