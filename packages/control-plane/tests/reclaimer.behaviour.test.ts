// Tests of the warnings about a balance, of the outbox, and of the reclaimer, on two replicas and with a real mail
// server. Tests move the times of an account into the past instead of waiting.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { findAbandoned, reclaim } from '../src/billing/reclaimer.ts';
import { readConfig } from '../src/config.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { startMail } from './support/mail-server.ts';
import { until } from './support/postgres.ts';
import { holdRow } from './support/row-locks.ts';
import { startTestBed, TEST_ORIGIN, type TestBed } from './support/test-bed.ts';
import { EUR, openWallet, type Wallet } from './support/wallet.ts';

const WITHIN_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const mail = await startMail();
const AUTH = { publicUrl: TEST_ORIGIN, signUp: 'closed', signUpBilling: 'prepaid', oidc: undefined } as const;
const auth = { ...AUTH, mail: { smtpUrl: mail.url, from: 'sandbar@example.test' } };
const [bed, silent, quiet] = await Promise.all([
  startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 }, config: { auth } }),
  startTestBed(),
  // The reconciler of this test bed does not run on its own. Only the tests run its tasks.
  startTestBed({
    timing: { reconcileMs: HOUR_MS, reconcileJobsMs: HOUR_MS },
    host: { subnet: '10.84.0.0/16', memory_mb: 1_000_000 },
  }),
]);
const { host } = bed;
const { db } = bed.plane.app;
afterEach(() => {
  host.heal();
  mail.refuses = false;
});

type Owned = { machine: string; stopped: string; snapshot: string; volume: string; kept: string };

/** Gives the account a running and a stopped machine, a snapshot, an attached volume and a kept root disk. */
async function buy({ api }: Wallet): Promise<Owned> {
  const make = async (path: string, body: object = {}): Promise<string> => {
    const answer = await api('POST', path, { body });
    assert.equal(answer.status, path.endsWith('/attach') ? 200 : 201, answer.text);
    return answer.json.id;
  };
  const [machine, stopped, gone] = [
    await make('/v1/machines', { memory_mb: 128 }),
    await make('/v1/machines', { memory_mb: 128 }),
    await make('/v1/machines', { memory_mb: 128 }),
  ];
  const volume = await make('/v1/volumes', { size_gb: 5 });
  await make(`/v1/volumes/${volume}/attach`, { machine_id: machine });
  const snapshot = await make(`/v1/machines/${machine}/snapshots`);
  await api('POST', `/v1/machines/${stopped}/stop`);
  const kept = (await api('DELETE', `/v1/machines/${gone}?preserve_storage=true`)).json.root_volume_id;
  return { machine, stopped, snapshot, volume, kept };
}

/** How many machines, snapshots and volumes the account has. */
async function countOwned({ id }: Wallet, of: TestBed = bed): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select (select count(*) from machines where account_id = ${id} and state <> 'destroyed')
      + (select count(*) from snapshots where account_id = ${id})
      + (select count(*) from volumes where account_id = ${id}) as count`.execute(of.plane.app.db);
  return rows[0]?.count ?? Number.NaN;
}
const isGone = (wallet: Wallet, of: TestBed = bed) =>
  until(async () => (await countOwned(wallet, of)) === 0, 'the account owns nothing', WITHIN_MS);

/** Moves the times of the account into the past, as if `ms` milliseconds had passed. */
const letPass = (wallet: Wallet, ms: number) =>
  wallet.write({
    empty_since: sql<Date>`empty_since - ${ms} * interval '1 millisecond'`,
    notice_at: sql<Date>`notice_at - ${ms} * interval '1 millisecond'`,
  });
const isWarned = (wallet: Wallet, notice: string | null) =>
  until(async () => (await wallet.row()).notice === notice, `the warning is ${notice}`, WITHIN_MS);
/** Runs a full pass of every task on both replicas. */
const pass = async () => {
  for (const { reconciler } of bed.replicas) await reconciler.runOnce();
};
const subjectsTo = ({ email }: Wallet): string[] =>
  mail.mails
    .filter((text) => text.includes(`To: ${email}`))
    .map((text) => /^Subject: (.*(?:\r\n .*)*)/m.exec(text)?.[1]?.replaceAll('\r\n', '') ?? '');

/**
 * Brings an account to the last warning, given a day ago, so that the reclaimer removes everything in its next pass.
 */
async function abandon(wallet: Wallet): Promise<void> {
  await wallet.setBalance(0);
  await wallet.write({
    empty_since: sql<Date>`now() - interval '31 days'`,
    notice: 'day',
    notice_at: sql<Date>`now() - interval '25 hours'`,
  });
}

describe('a warning', () => {
  it('is given at a fifth, at zero, a week and a day before the reclaimer, each once by mail', async () => {
    const wallet = await openWallet(bed);
    await wallet.setBalance(2 * EUR + 1);
    await pass();
    assert.equal((await wallet.row()).notice, null);
    await wallet.setBalance(2 * EUR);
    await isWarned(wallet, 'low');
    await buy(wallet);
    await wallet.setBalance(-1);
    await isWarned(wallet, 'empty');
    await letPass(wallet, 23 * DAY_MS - HOUR_MS);
    await pass();
    assert.equal((await wallet.row()).notice, 'empty');
    await letPass(wallet, HOUR_MS);
    await isWarned(wallet, 'week');
    await letPass(wallet, 6 * DAY_MS - HOUR_MS);
    await pass();
    assert.equal((await wallet.row()).notice, 'week');
    await letPass(wallet, HOUR_MS);
    await isWarned(wallet, 'day');
    await pass();
    await until(() => subjectsTo(wallet).length === 4, 'four mails have come', WITHIN_MS);
    await pass();
    assert.deepEqual(subjectsTo(wallet).sort(), [
      'Last warning: your Sandbar machines and volumes will be deleted',
      'Your Sandbar balance is low',
      'Your Sandbar balance is used up',
      'Your Sandbar machines and volumes will be deleted soon',
    ]);
    assert(mail.mails.every((text) => text.includes(TEST_ORIGIN)));
    assert((await countOwned(wallet)) > 0);
  });

  it('says when the reclaimer acts, and always leaves the promised time until then', async () => {
    const wallet = await openWallet(bed);
    await buy(wallet);
    await wallet.setBalance(0);
    await isWarned(wallet, 'empty');
    // The service was down for longer than the whole window.
    await letPass(wallet, 40 * DAY_MS);
    await isWarned(wallet, 'week');
    const { notice_at } = await wallet.row();
    const date = new Date((notice_at?.getTime() ?? 0) + 7 * DAY_MS).toISOString().slice(0, 16).replace('T', ' ');
    const hasCome = () => mail.mails.some((text) => text.includes(wallet.email) && text.includes(`On ${date} UTC`));
    await until(hasCome, 'the mail says the date', WITHIN_MS);
  });

  it('starts anew after a top-up, also when the money runs out at once', async () => {
    const wallet = await openWallet(bed);
    await wallet.setBalance(0);
    await isWarned(wallet, 'empty');
    await wallet.topUp();
    await pass();
    assert.deepEqual([(await wallet.row()).notice, (await wallet.row()).empty_since], [null, null]);
    await wallet.setBalance(0);
    await isWarned(wallet, 'empty');
    await until(() => subjectsTo(wallet).length === 2, 'both mails have come', WITHIN_MS);
  });

  it('is not given to an account that never had money and owns nothing, nor to one that is not prepaid', async () => {
    const [fresh, unmetered, deleted] = [
      await openWallet(bed, { isNew: true }),
      await openWallet(bed),
      await openWallet(bed),
    ];
    await unmetered.setMode('unmetered');
    await unmetered.setBalance(0);
    await deleted.write({ deleted_at: sql<Date>`now()` });
    await deleted.setBalance(0);
    await pass();
    for (const wallet of [fresh, unmetered, deleted]) {
      assert.deepEqual([(await wallet.row()).notice, subjectsTo(wallet)], [null, []]);
    }
  });

  it('is given to an account that never had money but owns something', async () => {
    const wallet = await openWallet(bed, { isNew: true });
    await wallet.setMode('unmetered');
    await buy(wallet);
    await pass();
    assert.equal((await wallet.row()).notice, null);
    await wallet.setMode('prepaid');
    await isWarned(wallet, 'empty');
    await until(() => subjectsTo(wallet).length === 1, 'the mail has come', WITHIN_MS);
  });

  it('of twenty accounts at once comes once for each', async () => {
    const wallets = await Promise.all(Array.from({ length: 20 }, () => openWallet(bed)));
    await Promise.all(wallets.map((wallet) => wallet.setBalance(EUR)));
    for (const wallet of wallets) await isWarned(wallet, 'low');
    await until(() => wallets.every((wallet) => subjectsTo(wallet).length > 0), 'all mails have come', WITHIN_MS);
    await pass();
    for (const wallet of wallets) assert.deepEqual(subjectsTo(wallet), ['Your Sandbar balance is low']);
  });

  it('is recorded where no mail server is configured, and leaves no mail behind', async () => {
    const wallet = await openWallet(silent);
    await wallet.setBalance(0);
    await isWarned(wallet, 'empty');
    const mails = await silent.plane.app.db.selectFrom('mails').selectAll().execute();
    assert.deepEqual(mails, []);
  });
});

describe('the outbox', () => {
  it('keeps a mail that the mail server refuses, and sends it once when the server takes it', async () => {
    const wallet = await openWallet(bed);
    mail.refuses = true;
    await wallet.setBalance(0);
    const attempts = async () =>
      (await db.selectFrom('mails').selectAll().where('recipient', '=', wallet.email).execute())[0]?.attempts ?? 0;
    await until(async () => (await attempts()) >= 2, 'it was refused twice', WITHIN_MS);
    assert.deepEqual(subjectsTo(wallet), []);
    mail.refuses = false;
    await until(() => subjectsTo(wallet).length > 0, 'the mail has come', WITHIN_MS);
    await until(async () => (await attempts()) === 0, 'it has left the outbox', WITHIN_MS);
    assert.equal(subjectsTo(wallet).length, 1);
  });

  it('drops a mail that was refused for three days, and logs it as an error', async () => {
    mail.refuses = true;
    const { id } = await db
      .insertInto('mails')
      .values({ recipient: 'gone@example.test', subject: 'old', body: 'old', attempts: 77 })
      .returning('id')
      .executeTakeFirstOrThrow();
    const told = new RegExp(`"mail_id":"${id}".*a mail could not be sent and was dropped`);
    await until(() => told.test(bed.logged()), 'it was dropped, and the log says so', WITHIN_MS);
    assert.deepEqual(await db.selectFrom('mails').select('id').where('id', '=', id).execute(), []);
  });

  it('sends a mail again when its sender died and the claim has expired', async () => {
    const row = { recipient: 'again@example.test', subject: 'again', body: 'again', attempts: 1 };
    const { id } = await db
      .insertInto('mails')
      .values({ ...row, due_at: sql<Date>`now() + interval '10 minutes'` })
      .returning('id')
      .executeTakeFirstOrThrow();
    await pass();
    assert(!mail.mails.some((text) => text.includes('again@example.test')));
    await db.updateTable('mails').set({ due_at: sql<Date>`now()` }).where('id', '=', id).execute();
    const arrived = () => mail.mails.filter((text) => text.includes('To: again@example.test'));
    await until(() => arrived().length > 0, 'it has come', WITHIN_MS);
    assert(arrived()[0]?.includes(`Message-ID: <${id}@sandbar.test>`));
  });
});

describe('the reclaimer', () => {
  it('removes snapshots, then machines, then volumes, each with its entry, and nothing of another account', async () => {
    const [wallet, other] = [await openWallet(bed), await openWallet(bed)];
    const { machine, stopped, snapshot, volume, kept } = await buy(wallet);
    await buy(other);
    const before = [await countOwned(other), (await other.feed()).length];
    await abandon(wallet);
    await isGone(wallet);
    const entries = (await wallet.feed()).filter((entry) => entry.endsWith('by system:reclaimer'));
    assert.deepEqual(entries.map((entry) => entry.split(' ')[0]).filter(isRemoval), [
      'snapshot.deleted',
      ...['machine.destroyed', 'machine.destroyed'],
      ...['volume.deleted', 'volume.deleted'],
    ]);
    assert.deepEqual([await countOwned(other), (await other.feed()).length], before);
    for (const id of [machine, stopped]) {
      assert.equal((await wallet.api('GET', `/v1/machines/${id}`)).json.state, 'destroyed');
      assert(!host.machines.has(id));
    }
    assert(!host.snapshots.has(snapshot) && !host.volumes.has(volume) && !host.volumes.has(kept));
    await checkAll(bed);
  });
  const isRemoval = (action: string | undefined): boolean => /deleted|destroyed/.test(action ?? '');

  it('never acts because the clock jumps: not without both warnings, and not before the second is a day old', async () => {
    const wallet = await openWallet(bed);
    await buy(wallet);
    const owned = await countOwned(wallet);
    await wallet.setBalance(0);
    // The clock jumps ahead by two months, twice: before the first warning, and between the last two.
    await wallet.write({ empty_since: sql<Date>`now() - interval '60 days'`, notice: null, notice_at: null });
    await isWarned(wallet, 'week');
    await pass();
    assert.deepEqual([(await wallet.row()).notice, await countOwned(wallet)], ['week', owned]);
    await letPass(wallet, 60 * DAY_MS);
    await isWarned(wallet, 'day');
    await pass();
    assert.deepEqual([(await wallet.row()).notice, await countOwned(wallet)], ['day', owned]);
    await letPass(wallet, DAY_MS - HOUR_MS);
    await pass();
    assert.equal(await countOwned(wallet), owned);
    await letPass(wallet, HOUR_MS);
    await isGone(wallet);
  });

  it('leaves an account whose window is not over, although it was warned', async () => {
    const wallet = await openWallet(bed);
    await buy(wallet);
    const owned = await countOwned(wallet);
    await wallet.setBalance(0);
    await wallet.write({
      empty_since: sql<Date>`now() - interval '29 days'`,
      notice: 'day',
      notice_at: sql<Date>`now() - interval '2 days'`,
    });
    await pass();
    await pass();
    assert.equal(await countOwned(wallet), owned);
  });

  for (const table of ['snapshots', 'machines', 'volumes'] as const) {
    it(`keeps the ${table} of an account if a top-up arrives after the reclaimer has found the account`, async () => {
      const wallet = await openWallet(bed);
      const owned = await buyOnly(wallet, table);
      const held = await holdRow(bed.databaseUrl, table, owned);
      await abandon(wallet);
      await held.isWaitedFor(1);
      await wallet.topUp();
      await held.release();
      await pass();
      assert((await countOwned(wallet)) > 0);
      const removals = (await wallet.feed()).filter((entry) => entry.endsWith('system:reclaimer'));
      assert.deepEqual(removals, []);
      await checkAll(bed);
    });
  }

  /** Gives the account one resource to be removed first. Returns its id. */
  async function buyOnly({ api }: Wallet, table: 'snapshots' | 'machines' | 'volumes'): Promise<string> {
    if (table === 'volumes') return (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    const { id } = (await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).json;
    // A running machine would be locked by the spend guard too.
    await api('POST', `/v1/machines/${id}/stop`);
    return table === 'machines' ? id : (await api('POST', `/v1/machines/${id}/snapshots`)).json.id;
  }

  it('removes machines only after the snapshots, even when the host refuses to delete these at first', async () => {
    const wallet = await openWallet(bed);
    const { snapshot, machine } = await buy(wallet);
    host.refused.add(snapshot);
    await abandon(wallet);
    const tries = () => host.calls.filter(({ machineId }) => machineId === snapshot).length;
    await until(() => tries() >= 3, 'the host has refused', WITHIN_MS);
    assert.notEqual((await wallet.api('GET', `/v1/machines/${machine}`)).json.state, 'destroyed');
    host.heal();
    await isGone(wallet);
    await checkAll(bed);
  });

  it('removes what a deleted account owns at once, whatever its balance, in the name of the operator', async () => {
    for (const mode of ['prepaid', 'unmetered'] as const) {
      const wallet = await openWallet(bed);
      await buy(wallet);
      await wallet.setMode(mode);
      await wallet.write({ deleted_at: sql<Date>`now()` });
      await isGone(wallet);
      const { rows } = await sql<{ actor: string; action: string }>`select actor, action from activity
        where account_id = ${wallet.id} and actor <> 'user' order by created_at`.execute(db);
      assert(rows.every(({ actor }) => actor === 'system:operator'));
      assert.equal(rows.filter(({ action }) => isRemoval(action)).length, 5);
    }
    await checkAll(bed);
  });

  it('begins no removal on a host that is not connected', async () => {
    const wallet = await openWallet(bed);
    await buy(wallet);
    const owned = await countOwned(wallet);
    await host.away();
    await until(
      () => bed.replicas.every(({ app }) => app.hosts.reachableIds().length === 0),
      'both replicas have noticed',
      WITHIN_MS,
    );
    await abandon(wallet);
    await pass();
    await wallet.topUp();
    await host.listen();
    await until(() => bed.replicas.every(({ app }) => app.hosts.reachableIds().length > 0), 'it is back', WITHIN_MS);
    await pass();
    assert.equal(await countOwned(wallet), owned);
    await checkAll(bed);
  });

  const FATES: Fate[] = ['dies', 'loses the answer'];
  for (const fate of FATES) {
    it(`removes each resource once, at whatever step a control plane ${fate}`, async () => {
      const { app, reconciler } = quiet.plane;
      for (let at = 1, wasReached = true; wasReached; at++) {
        assert(at < 300, 'the reclaimer ends after a limited number of steps');
        const wallet = await openWallet(quiet);
        await buy(wallet);
        await abandon(wallet);
        wasReached = await runWithFate(app, { fate, at }, async (own) => {
          for (const abandoned of await findAbandoned(own)) await reclaim(own, abandoned);
        });
        const isDone = async () => {
          await sql`update operations set claim_expires_at = now() - interval '1 second', run_at = now()
            where finished_at is null`.execute(app.db);
          await reconciler.runOnce();
          return (await countOwned(wallet, quiet)) === 0;
        };
        await until(isDone, `everything is removed after step ${at}`, WITHIN_MS);
        const removals = (await wallet.feed()).filter((entry) => /(deleted|destroyed) by system:reclaimer/.test(entry));
        assert.equal(removals.length, 5);
      }
      await checkAll(quiet);
    });
  }
});

describe('SANDBAR_RECLAIM_DAYS', () => {
  const env = {
    SANDBAR_HOME: '/srv/sandbar',
    SANDBAR_DATABASE_URL: 'postgres://localhost/x',
    SANDBAR_SECRET: 'x'.repeat(32),
  };
  const read = (days?: string) =>
    readConfig({ ...env, ...(days === undefined ? {} : { SANDBAR_RECLAIM_DAYS: days }) }, false).reclaimDays;

  it('is a whole number of days from 1 to 3650, and 30 by default', () => {
    assert.deepEqual([read(), read('1'), read('3650')], [30, 1, 3650]);
    for (const days of ['0', '-1', '1.5', '3651', 'month']) {
      assert.throws(() => read(days), /SANDBAR_RECLAIM_DAYS must be/);
    }
  });
});
