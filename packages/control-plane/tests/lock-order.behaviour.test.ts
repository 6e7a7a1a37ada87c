// Tests that transactions which free an idempotency key lock the account first, as db/transaction.ts says. Each test holds
// the account's row until such a transaction waits for it. Then nobody may have locked the account's keys: the deletion of
// an account, which locks both in that order, would end in a deadlock.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { removeHost } from '../src/hosts/remove.ts';
import { endWithHost } from '../src/reconcilers/away.ts';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { holdRow } from './support/row-locks.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, plane } = bed;
const { app } = plane;
const { db } = app;
afterEach(() => host.heal());

let accounts = 0;
/** Begins a create with an idempotency key in an account of its own. The host does not answer it. */
async function beginCreate() {
  const email = `order-${++accounts}@example.test`;
  const accountId = await insertAccount(db, { email, tier: 'enterprise' });
  const key = await insertKey(db, accountId, 'full', 'order');
  host.fault('ensure', 'hangThenFail', 1);
  const asked = host.calls.length;
  const creating = api('POST', '/v1/machines', { key, headers: { 'idempotency-key': 'once' } });
  const call = () => host.calls.slice(asked).find(({ operation }) => operation === 'ensure');
  await bed.settled(() => call() !== undefined);
  return { accountId, creating, machineId: call()?.machineId ?? assert.fail() };
}
const countKeys = async (accountId: string) =>
  (await db.selectFrom('idempotency_keys').select('key').where('account_id', '=', accountId).execute()).length;

/** Runs `change` while the account is locked, and asserts that it waits for the account without a lock on its keys. */
async function checkOrder(accountId: string, change: () => Promise<unknown>): Promise<void> {
  const held = await holdRow(bed.databaseUrl, 'accounts', accountId);
  const changed = change();
  try {
    await held.isWaitedFor(1);
    assert.equal(await held.alsoLocks('idempotency_keys', accountId), 1);
  } finally {
    await held.release();
    await changed;
  }
  assert.equal(await countKeys(accountId), 0, 'the key is free');
}

describe('the account is locked before its idempotency keys', () => {
  it('by the undo of a create', async () => {
    const { accountId, creating } = await beginCreate();
    await checkOrder(accountId, () => {
      host.release();
      return creating;
    });
  });

  it('by the end of the machines of a host that is away', async () => {
    const { accountId, creating, machineId } = await beginCreate();
    await checkOrder(accountId, () => endWithHost(app, machineId, 'Its host went away.', async () => true));
    host.release();
    assert.equal((await creating).status, 503);
  });

  it('by the removal of a host with what is on it', async () => {
    const { accountId, creating } = await beginCreate();
    await checkOrder(accountId, () => removeHost(app, FAKE_HOST_ID, true));
    host.release();
    assert.equal((await creating).status, 503);
  });
});
