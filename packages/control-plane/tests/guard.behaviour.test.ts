// Tests of the spend guard on two replicas: each machine of an account that may not run machines is stopped exactly
// once, whatever else happens. No other machine is stopped.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { findUnpaid, stopUnpaid } from '../src/billing/guard.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { holdRow } from './support/row-locks.ts';
import { startTestBed } from './support/test-bed.ts';
import { EUR, openWallet, type Wallet } from './support/wallet.ts';

const WITHIN_MS = 60_000;
const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 } });
const { host } = bed;
const { db } = bed.plane.app;
afterEach(() => host.heal());

const create = async (wallet: Wallet): Promise<string> => {
  const answer = await wallet.api('POST', '/v1/machines', { body: { memory_mb: 128 } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const stateOf = async (wallet: Wallet, id: string): Promise<string> =>
  (await wallet.api('GET', `/v1/machines/${id}`)).json.state;
const becomes = (wallet: Wallet, id: string, state: string) =>
  until(async () => (await stateOf(wallet, id)) === state, `it is ${state}`, WITHIN_MS);
/** Waits until the guard has stopped a machine of a new account. So a full pass has begun since the call. */
async function passes(): Promise<void> {
  const wallet = await openWallet(bed);
  const id = await create(wallet);
  await wallet.setBalance(0);
  await becomes(wallet, id, 'stopped');
}

describe('the spend guard', () => {
  it('stops every running machine of an account without money, each once, and no machine of another account', async () => {
    const [wallet, other] = [await openWallet(bed), await openWallet(bed)];
    const machines = await Promise.all(Array.from({ length: 20 }, () => create(wallet)));
    const paid = await create(other);
    await wallet.setBalance(0);
    for (const id of machines) await becomes(wallet, id, 'stopped');
    const feed = await wallet.feed();
    assert.equal(feed.filter((entry) => entry === 'machine.stopped by system:spend_guard').length, 20);
    assert.equal(feed.length, 40);
    assert.deepEqual([await stateOf(other, paid), await other.feed()], ['running', ['machine.created by user']]);
    await checkAll(bed);
  });

  it('stops no machine of an unmetered account, and none while a millionth of a euro is left', async () => {
    const [unmetered, poor] = [await openWallet(bed), await openWallet(bed)];
    const machines = [await create(unmetered), await create(poor)] as const;
    await unmetered.setMode('unmetered');
    await unmetered.setBalance(-EUR);
    await poor.setMode('unmetered');
    await poor.setBalance(1);
    await poor.setMode('prepaid');
    await passes();
    assert.equal(await stateOf(unmetered, machines[0]), 'running');
    // A charge may have taken the rest of the money meanwhile. Then the guard was right to stop the machine.
    if ((await poor.row()).balance_micros > 0) assert.equal(await stateOf(poor, machines[1]), 'running');
  });

  it('lets the machine start again after a top-up', async () => {
    const wallet = await openWallet(bed);
    const id = await create(wallet);
    await wallet.setBalance(-5);
    await becomes(wallet, id, 'stopped');
    assert.equal((await wallet.api('POST', `/v1/machines/${id}/start`)).status, 402);
    await wallet.topUp();
    assert.equal((await wallet.api('POST', `/v1/machines/${id}/start`)).status, 200);
    await passes();
    assert.equal(await stateOf(wallet, id), 'running');
  });

  it('does not stop a machine if a top-up arrives after the guard has found the machine', async () => {
    const wallet = await openWallet(bed);
    const id = await create(wallet);
    const held = await holdRow(bed.databaseUrl, 'machines', id);
    await wallet.setBalance(0);
    await held.isWaitedFor(2);
    await wallet.topUp();
    await held.release();
    await passes();
    assert.deepEqual([await stateOf(wallet, id), await wallet.feed()], ['running', ['machine.created by user']]);
    await checkAll(bed);
  });

  it('stops the machines of suspended and of deleted accounts in the name of the operator', async () => {
    for (const column of ['suspended_at', 'deleted_at'] as const) {
      const wallet = await openWallet(bed);
      const id = await create(wallet);
      await wallet.write({ [column]: new Date() });
      const stopped = async () => {
        const found = await db
          .selectFrom('activity')
          .select(['action', 'actor'])
          .where('machine_id', '=', id)
          .where('action', 'in', ['machine.stopped', 'machine.destroyed'])
          .execute();
        return found.length > 0 && found.every(({ actor }) => actor === 'system:operator');
      };
      await until(stopped, `the machine of an account with ${column} has ended`, WITHIN_MS);
    }
    await checkAll(bed);
  });

  it('waits for an operation that is under way, and stops the machine after it', async () => {
    const wallet = await openWallet(bed);
    const id = await create(wallet);
    host.fault('takeSnapshot', 'hang', 1);
    const snapshot = wallet.api('POST', `/v1/machines/${id}/snapshots`);
    await until(() => host.callsOf('takeSnapshot') > 0, 'a snapshot is being taken', WITHIN_MS);
    await wallet.setBalance(0);
    await passes();
    assert.equal(await stateOf(wallet, id), 'running');
    host.release();
    assert.equal((await snapshot).status, 201);
    await becomes(wallet, id, 'stopped');
    assert.deepEqual(await wallet.feed(), [
      'machine.created by user',
      'snapshot.created by user',
      'machine.stopped by system:spend_guard',
    ]);
    await checkAll(bed);
  });

  it('stops the machine that was being created when the money ran out', async () => {
    const wallet = await openWallet(bed);
    const before = host.callsOf('ensure');
    host.fault('ensure', 'hang', 1);
    const creating = create(wallet);
    await until(() => host.callsOf('ensure') > before, 'the host was asked', WITHIN_MS);
    await wallet.setBalance(0);
    host.release();
    const id = await creating;
    await becomes(wallet, id, 'stopped');
    assert.equal((await wallet.feed()).at(-1), 'machine.stopped by system:spend_guard');
  });

  it('is not held up by machines whose stops hang, one on each replica', async () => {
    const wallet = await openWallet(bed);
    const machines = [await create(wallet), await create(wallet), await create(wallet)];
    const countStopped = async () => {
      const states = await Promise.all(machines.map((id) => stateOf(wallet, id)));
      return states.filter((state) => state === 'stopped').length;
    };
    host.fault('ensure', 'hang', 2);
    await wallet.setBalance(0);
    await until(async () => (await countStopped()) === 1, 'the third machine is stopped', WITHIN_MS);
    await passes();
    assert.equal(await countStopped(), 1);
    host.release();
    await until(async () => (await countStopped()) === 3, 'all are stopped', WITHIN_MS);
    await checkAll(bed);
  });

  it('begins no stop on a host that is not connected, so a top-up before the host returns prevents the stop', async () => {
    const [topped, empty] = [await openWallet(bed), await openWallet(bed)];
    const machines = [await create(topped), await create(empty)] as const;
    await host.away();
    await until(
      () => bed.replicas.every(({ app }) => app.hosts.reachableIds().length === 0),
      'both replicas have noticed',
      WITHIN_MS,
    );
    await topped.setBalance(0);
    await empty.setBalance(0);
    for (const { reconciler } of bed.replicas) await reconciler.runOnce();
    const { rows } = await sql`select from operations where account_id in (${topped.id}, ${empty.id})
      and finished_at is null`.execute(db);
    assert.deepEqual(rows, [], 'no operation waits for the host');
    await topped.topUp();
    await host.listen();
    await becomes(empty, machines[1], 'stopped');
    assert.deepEqual(
      [await stateOf(topped, machines[0]), await topped.feed()],
      ['running', ['machine.created by user']],
    );
    await checkAll(bed);
  });
});

describe('a running machine that the spend guard has not stopped yet', () => {
  it('takes no request that would keep the guard waiting', async () => {
    const quiet = await startTestBed({ timing: { guardMs: 3_600_000 } });
    const wallet = await openWallet(quiet);
    const id = await create(wallet);
    const volume: string = (await wallet.api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    const snapshot: string = (await wallet.api('POST', `/v1/machines/${id}/snapshots`)).json.id;
    const attach = () => wallet.api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: id } });
    assert.equal((await attach()).status, 200);
    const keep = async () => [
      (await wallet.api('POST', `/v1/machines/${id}/snapshots`)).status,
      (await wallet.api('POST', `/v1/snapshots/${snapshot}/restore`)).status,
      (await wallet.api('POST', `/v1/volumes/${volume}/detach`)).status,
      (await attach()).status,
    ];
    await wallet.setBalance(0);
    assert.deepEqual(await keep(), [402, 402, 402, 402]);
    await wallet.setBalance(EUR);
    assert.deepEqual(await keep(), [201, 200, 200, 200]);
    await wallet.setBalance(0);
    assert.equal((await wallet.api('POST', `/v1/machines/${id}/stop`)).status, 200);
    assert.deepEqual(await keep(), [201, 200, 200, 200]);
    await checkAll(quiet);
  });
});

describe('a control plane that dies while the spend guard stops a machine', () => {
  const FATES: Fate[] = ['dies', 'loses the answer'];
  for (const fate of FATES) {
    it(`(it ${fate}): the machine is stopped exactly once, whatever the step`, async () => {
      // The reconciler must not run on its own here: only the test's own process may take steps.
      const quiet = await startTestBed({ timing: { reconcileMs: 3_600_000, reconcileJobsMs: 3_600_000 } });
      const { app, reconciler } = quiet.plane;
      for (let at = 1, wasReached = true; wasReached; at++) {
        assert(at < 100, 'a stop has an end');
        const wallet = await openWallet(quiet);
        const id = await create(wallet);
        await wallet.setBalance(0);
        wasReached = await runWithFate(app, { fate, at }, async (own) => {
          for (const machine of await findUnpaid(own)) await stopUnpaid(own, machine);
        });
        await sql`update operations set claim_expires_at = now() - interval '1 second', run_at = now()
          where finished_at is null`.execute(app.db);
        const hasStopped = async () => {
          await reconciler.runOnce();
          const { state, operation } = (await wallet.api('GET', `/v1/machines/${id}`)).json;
          return state === 'stopped' && operation === null;
        };
        await until(hasStopped, `it is stopped after step ${at}`, WITHIN_MS);
        assert.deepEqual(await wallet.feed(), ['machine.created by user', 'machine.stopped by system:spend_guard']);
        await checkAll(quiet);
      }
    });
  }
});
