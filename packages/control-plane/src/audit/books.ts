// Audits the stored totals: each account's use, and the room that each host has reserved. Both are compared with the
// rows of machines and volumes that they count. The wallet stores no balance but only ledger entries, so each entry is
// checked by itself.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { formatEur } from '../billing/money.ts';
import { findMiscounts, findMisreservations, recountAccount, recountHost } from '../quotas/recount.ts';
import type { Finding } from './finding.ts';

const SHOWN_ENTRIES = 20;

/** Returns the findings about quotas, the reservations on hosts and the ledger. */
export async function findInBooks(app: App): Promise<Finding[]> {
  return [...(await findInQuotas(app)), ...(await findInReservations(app)), ...(await findInLedger(app))];
}

async function findInQuotas(app: App): Promise<Finding[]> {
  const miscounts = await findMiscounts(app.db);
  return miscounts.map(({ accountId, email, differences }) => ({
    area: 'quota',
    hostId: null,
    subject: accountId,
    key: `quota/${accountId}`,
    detail: `The account of ${email} is charged for ${differences.join(', ')}.`,
    mend: {
      fix: 'count its use anew',
      did: 'counted its use anew',
      run: () => recountAccount(app, accountId),
    },
  }));
}

async function findInReservations(app: App): Promise<Finding[]> {
  const misreservations = await findMisreservations(app.db);
  return misreservations.map(({ hostId, differences }) => ({
    area: 'reservation',
    hostId,
    subject: hostId,
    key: `reservation/${hostId}`,
    detail: `The host has promised ${differences.join(', ')}, which its machines and volumes add up to.`,
    mend: {
      fix: 'count its promises anew',
      did: 'counted its promises anew',
      run: () => recountHost(app, hostId),
    },
  }));
}

/**
 * Finds charges that put money into the wallet. They have no automatic repair, because ledger entries are never changed;
 * the operator adds a correcting entry.
 */
async function findInLedger(app: App): Promise<Finding[]> {
  const rows = await app.db
    .selectFrom('ledger')
    .select(['id', 'account_id', 'kind', 'amount_micros'])
    .where(sql<boolean>`kind = 'charge' and amount_micros > 0`)
    .orderBy('id')
    .limit(SHOWN_ENTRIES)
    .execute();
  return rows.map(({ id, account_id, kind, amount_micros }) => ({
    area: 'ledger',
    hostId: null,
    subject: id,
    key: `ledger/${id}`,
    detail: `A ${kind} of ${formatEur(amount_micros)} EUR of account ${account_id} has the wrong sign.`,
  }));
}
