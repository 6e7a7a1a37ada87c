// A control plane of its own for tests of payments in a browser: it takes payments through stripe-mock, and has a
// prepaid account with weeks of use. Its host is a fake one, because no machine has to run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { ensureDashboard } from '@sandbar/service/setup/dashboard.ts';
import { sql } from 'kysely';
import type { Page } from 'playwright-core';
import { insertAccount } from '../../../packages/control-plane/src/accounts/store.ts';
import { setPassword } from '../../../packages/control-plane/src/auth/password.ts';
import { chargeAccounts } from '../../../packages/control-plane/src/billing/charge.ts';
import { inTransaction } from '../../../packages/control-plane/src/db/transaction.ts';
import { freePort } from '../../../packages/control-plane/tests/support/free-ports.ts';
import { insertMeters, insertPrices, type TestMeter } from '../../../packages/control-plane/tests/support/meters.ts';
import { StripeDouble } from '../../../packages/control-plane/tests/support/stripe-double.ts';
import { startTestBed, TEST_PASSWORD, type TestBed } from '../../../packages/control-plane/tests/support/test-bed.ts';
import { signIn } from './sign-in.ts';

const DAY_MS = 86_400_000;
const CHECKOUT = join(import.meta.dirname, '../../..');
/** The longest interval that PostgreSQL reads as int, so that the service itself charges nothing. */
const NEVER_MS = 2 ** 31 - 1;

export type PaymentBed = { bed: TestBed; stripe: StripeDouble; url: string };

export async function startPaymentBed(): Promise<PaymentBed> {
  const folder = mkdtempSync(join(tmpdir(), 'sandbar-dashboard-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const dashboardDir = await ensureDashboard(CHECKOUT, folder, console.error);
  const stripe = await StripeDouble.start();
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const auth = {
    publicUrl: url,
    signUp: 'closed',
    signUpBilling: 'prepaid',
    mail: undefined,
    oidc: undefined,
  } as const;
  const bed = await startTestBed({
    timing: { chargeMs: NEVER_MS },
    config: { dashboardDir, auth, listen: { host: '127.0.0.1', port }, billing: stripe.config },
  });
  return { bed, stripe, url };
}

/** Makes a prepaid account with a password. Returns its id. */
export async function makePrepaid({ bed }: PaymentBed, email: string): Promise<string> {
  const { db } = bed.plane.app;
  const id = await insertAccount(db, { email, tier: 'free', billingMode: 'prepaid' });
  await setPassword(db, id, TEST_PASSWORD);
  return id;
}

/** Signs in to an account of {@link makePrepaid} and opens its billing page. */
export async function openBilling(page: Page, email: string): Promise<void> {
  await page.goto('/billing');
  await signIn(page, { email, password: TEST_PASSWORD });
  await page.getByRole('heading', { name: 'Billing' }).waitFor();
}

/** Writes three weeks of use, each day charged at its end, and a top-up before them. */
export async function writeHistory({ bed }: PaymentBed, accountId: string): Promise<void> {
  const { db } = bed.plane.app;
  const end = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const begin = end - 21 * DAY_MS;
  const prices = { vcpu_micros: 40_000, memory_micros: 5_000, storage_micros: 200, snapshot_micros: 100 };
  const price_id = await insertPrices(db, prices);
  const none = { vcpus: 0, memory_mb: 0, storage_gb: 0, snapshot_mb: 0, price_id, metadata: {} };
  const resource = (index: number) => `019b0000-0000-7000-8000-${String(index).padStart(12, '0')}`;
  const meters: TestMeter[] = [];
  for (let day = 0; day < 21; day++) {
    const from = begin + day * DAY_MS;
    for (const [index, team] of ['research', 'platform', 'a team with quite a long name'].entries()) {
      const hours = ((day * 7 + index * 5) % 11) + 1;
      const machine = { ...none, resource_kind: 'machine' as const, vcpus: 1 + index, memory_mb: 2048, storage_gb: 20 };
      const span = { startedMs: from, endedMs: from + hours * 3_600_000 };
      meters.push({ ...machine, ...span, metadata: { team }, resource_id: resource(day * 10 + index) });
    }
    const span = { startedMs: from, endedMs: from + DAY_MS };
    meters.push({ ...none, ...span, resource_kind: 'volume', storage_gb: 100, resource_id: resource(900) });
    meters.push({ ...none, ...span, resource_kind: 'snapshot', snapshot_mb: 40_960, resource_id: resource(901) });
  }
  await insertMeters(db, accountId, meters);
  await sql`
    with account as (
      update accounts set balance_micros = 50000000, full_micros = 50000000, empty_since = null, tier = 'payg',
        charged_until = ${new Date(begin)}, activity_at = ${new Date(begin)}
      where id = ${accountId} returning id
    )
    insert into ledger (id, account_id, kind, amount_micros, payments_micros, balance_micros, reference, note, created_at)
    select gen_random_uuid(), id, 'top-up', 50000000, -50000000, 50000000, 'transfer 4711', 'by the operator',
      ${new Date(begin)} from account`.execute(db);
  for (let at = begin + DAY_MS; at <= end; at += DAY_MS) {
    await inTransaction(db, async (tx) => {
      await tx
        .updateTable('accounts')
        .set({ activity_at: new Date(at) })
        .where('id', '=', accountId)
        .execute();
      await chargeAccounts(tx, [accountId]);
    });
  }
}
