// The operator's routes for the prices of the service.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { PRICE_NAMES, type PriceName, type Prices, PricesSet } from '@sandbar/contract/admin-billing.ts';
import { CURRENCY } from '@sandbar/contract/billing.ts';
import type { FastifyInstance } from 'fastify';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { formatEur } from '../billing/money.ts';
import { currentPrices, PRICE_MAX_MICROS, type PriceList, type PriceRow, setPrices } from '../billing/prices.ts';
import { repriceAccounts } from '../billing/reprice.ts';
import { inTransaction } from '../db/transaction.ts';
import { readAmount } from './amounts.ts';

const PATH = '/admin/prices';
/** The key of the advisory lock: an arbitrary number, the same in every replica. */
const LOCK_KEY = 7_020_001;

export function addPriceRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.get(PATH, async () => toPrices(await currentPrices(app.db)));
  server.post(PATH, { schema: { body: PricesSet } }, ({ body }) => changePrices(app, body));
}

/**
 * Puts new prices in force at once, also for everything that is in use now. Prices that the request does not name stay
 * as they are. Throws `validation_error`.
 */
async function changePrices(app: App, asked: PricesSet): Promise<Prices> {
  const changes = readPrices(asked);
  const prices = await inTransaction(app.db, async (tx) => {
    // Without the lock, two parallel changes could start from the same list, and the later one would undo the other.
    await sql`select pg_advisory_xact_lock(${LOCK_KEY}::bigint)`.execute(tx);
    const { id, created_at, ...list } = await currentPrices(tx);
    await setPrices(tx, { ...list, ...changes });
    return toPrices(await currentPrices(tx));
  });
  // If this process dies before this is done, the next round of metering does it.
  await repriceAccounts(app);
  return prices;
}

function readPrices(asked: PricesSet): Partial<PriceList> {
  const bounds = { least: 0, most: PRICE_MAX_MICROS };
  const given = PRICE_NAMES.flatMap((name) => {
    const text = asked[name];
    return text === undefined ? [] : [[columnOf(name), readAmount(name, text, bounds)] as const];
  });
  return Object.fromEntries(given);
}

const columnOf = (name: PriceName) => `${name}_micros` as const;

const toPrices = (row: PriceRow): Prices => ({
  currency: CURRENCY,
  prices: Object.fromEntries(PRICE_NAMES.map((name) => [name, formatEur(row[columnOf(name)])])) as Prices['prices'],
  since: row.created_at.toISOString(),
});
