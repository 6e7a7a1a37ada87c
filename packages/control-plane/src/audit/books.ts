// Audits the stored totals: each account's use, and the room that each host has reserved. Both are compared with the
// rows of machines and volumes that they count.
import type { App } from '../app.ts';
import { findMiscounts, findMisreservations, recountAccount, recountHost } from '../quotas/recount.ts';
import type { Finding } from './finding.ts';

/** Returns the findings about quotas and the reservations on hosts. */
export async function findInBooks(app: App): Promise<Finding[]> {
  return [...(await findInQuotas(app)), ...(await findInReservations(app))];
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
