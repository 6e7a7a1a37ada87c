// Property test of billing: random actions of accounts on two replicas, with crashes, faults of the host and steps of
// the clock. In the end the ledger must equal a recount from the feed, to the micro-euro.
//
// SANDBAR_PROPERTY_SEED: tests only this seed. SANDBAR_PROPERTY_RUNS: makes this many histories of each seed, however
// long that takes. Without it, each seed makes histories for a few seconds.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { formatEur } from '../src/billing/money.ts';
import { chargeDueAccounts } from '../src/billing/round.ts';
import { getUsage } from '../src/billing/usage.ts';
import { destroyMachine } from '../src/machines/actions.ts';
import {
  type Action,
  beginHistory,
  chargingAll,
  type History,
  live,
  MOMENTS,
  type Moment,
  settle,
} from './support/billing-history.ts';
import { checkLedger } from './support/ledger-check.ts';
import { costUntil, total } from './support/recount.ts';
import { keepStateLog } from './support/state-log.ts';
import { createSteppedDatabase, readClock } from './support/stepped-clock.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  databaseUrl: await createSteppedDatabase(),
  replicas: 2,
  host: { subnet: '10.83.0.0/16', cpus: 16, memory_mb: 100_000_000 },
  timing: {
    ...{ reconcileMs: 50, reconcileJobsMs: 100, unknownGraceMs: 100, chargeMs: 300 },
    ...{ claimTtlMs: 2_000, claimRenewMs: 200, retryMs: { first: 20, longest: 100 } },
  },
});
const { app } = bed.plane;
const { db } = app;
await keepStateLog(bed.databaseUrl, app.log);

const { SANDBAR_PROPERTY_RUNS: runs, SANDBAR_PROPERTY_SEED: givenSeed } = process.env;
const SEEDS = givenSeed ? [Number(givenSeed)] : [1, 2, 3, randomInt(1_000_000)];
/** How long each seed begins new histories, unless a number of runs is given. */
const SEED_MS = 3_000;
const RUNS_MAX = 100;
const DAY_MS = 86_400_000;

/** Charges up to this moment, twice and on both replicas at once. */
const chargeAll = () =>
  Promise.all([...bed.replicas, ...bed.replicas].map((replica) => chargeDueAccounts(chargingAll(replica.app))));

/** Fails unless each account has paid exactly for what it used, up to this moment. */
async function checkAccounts({ accounts }: History): Promise<void> {
  for (const account of accounts) {
    const now = Math.floor(await readClock(db));
    await chargeAll();
    // A round leaves out an account that another transaction has locked, such as the service's own round.
    await bed.settled(async () => {
      const { account: row, parts, charged } = await checkLedger(db, account);
      const instant = row.activity_at.getTime();
      assert.equal(charged, total(costUntil(parts, instant)), 'all that was used is charged');
      const isPaying = row.billing_mode === 'prepaid' && parts.some(({ until }) => until === Number.POSITIVE_INFINITY);
      if (!isPaying || instant >= now) return true;
      await chargeAll();
      return false;
    });
  }
}

/** Fails unless usage queries show what was used, however it is grouped. */
async function checkUsage({ accounts }: History): Promise<void> {
  for (const { accountId, ...deeds } of accounts) {
    for (const group_by of ['kind', 'day', 'resource', 'metadata.team']) {
      const from = new Date(Date.now() - DAY_MS).toISOString();
      const usage = await getUsage(app, accountId, { from, group_by });
      const { parts } = await checkLedger(db, { accountId, ...deeds });
      const expected = formatEur(Number(total(costUntil(parts, Date.parse(usage.to)))));
      assert.equal(usage.total, expected, `usage by ${group_by} up to ${usage.to}`);
    }
  }
}

async function destroyMachines({ accounts }: History): Promise<void> {
  const ids = accounts.map(({ accountId }) => accountId);
  const query = db.selectFrom('machines').select(['id', 'account_id']).where('account_id', 'in', ids);
  const machines = await query.where('state', '<>', 'destroyed').execute();
  const how = { deleteSnapshots: true, preserveStorage: true };
  await Promise.all(machines.map(({ id, account_id }) => destroyMachine(app, account_id, id, how)));
  await settle(bed);
}

/** Carries out a history. Checks the accounts after each moment, and again after their machines have ended. */
async function check(moments: readonly Moment[]): Promise<void> {
  const history = await beginHistory(bed);
  for (const moment of moments) {
    await live(bed, history, moment);
    for (const account of history.accounts) await checkLedger(db, account);
  }
  await checkAccounts(history);
  await checkUsage(history);
  await destroyMachines(history);
  await checkAccounts(history);
}

/** One action of the prepaid account, with nothing else at the same time. */
const only = (what: Action['what'], size: number): Moment => ({
  actions: [{ what, size, pick: 0, account: 0, replica: 0, fate: undefined, isTwice: false }],
  fault: undefined,
});

describe('the ledger of prepaid and unmetered accounts', () => {
  it('is exact where the products of price, quantity and time are larger than 2^63', async () => {
    // At 49.895510 EUR for a GiB-hour, 3,001 GiB for two days.
    await check([only('prices', 499), only('clock', 6), only('round', 0), only('clock', 1), only('round', 0)]);
  });

  for (const seed of SEEDS) {
    it(`equals a recount from the feed after random histories (seed ${seed})`, async (t) => {
      const until = runs ? Number.POSITIVE_INFINITY : performance.now() + SEED_MS;
      let done = 0;
      const property = fc.asyncProperty(MOMENTS, async (moments) => {
        if (performance.now() > until) return;
        await check(moments);
        done++;
      });
      // No shrinking, because what happens also depends on the order in which requests reach the database.
      await fc.assert(property, { seed, numRuns: runs ? Number(runs) : RUNS_MAX, endOnFailure: true });
      assert(done > 0);
      t.diagnostic(`${done} histories`);
    });
  }
});
