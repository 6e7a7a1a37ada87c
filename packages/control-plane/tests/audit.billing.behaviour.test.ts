// Tests of the audit of billing: it reports every difference between the ledger, the meters, the feed and what is in
// use. It repairs meters, and never changes an entry or a balance.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { setPrices } from '../src/billing/prices.ts';
import { asOwner, type Db } from '../src/db/database.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { createAuditActs } from './support/audit.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, plane } = bed;
const { db } = plane.app;
const { look, fix, expectOne, expectMended } = createAuditActs(bed);
// A running reconciler would charge accounts and change prices before the audit sees them.
await plane.reconciler.stop();

/** An account with 1000 EUR, and its key. */
async function newAccount() {
  const id = await insertAccount(db, { email: `${uuidv7()}@example.test`, tier: 'enterprise', billingMode: 'prepaid' });
  await inTransaction(db, (tx) =>
    addEntry(tx, { accountId: id, kind: 'bonus', amountMicros: 1_000_000_000, note: '' }),
  );
  return { id, key: await insertKey(db, id, 'full', 'key') };
}
const create = async (key: string, body: object = {}): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { key, body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const createVolume = async (key: string): Promise<string> => {
  const answer = await api('POST', '/v1/volumes', { key, body: { size_gb: 7 } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const metersOf = (resourceId: string) =>
  db.selectFrom('meters').selectAll().where('resource_id', '=', resourceId).orderBy('id').execute();

/** Changes rows that the service itself may not change. */
const asTheOwner = <T>(work: (owner: Db) => Promise<T>) => asOwner(bed.databaseUrl, plane.app.log, work);

/** Breaks something, expects exactly this finding without a repair, and undoes the damage. */
async function expectTold(
  area: 'ledger' | 'meter',
  subject: string,
  detail: RegExp,
  damage: { make: (owner: Db) => Promise<unknown>; undo: (owner: Db) => Promise<unknown> },
): Promise<void> {
  await asTheOwner(damage.make);
  assert.equal(await expectOne(area, subject, detail), null);
  assert.deepEqual((await fix()).fixed, []);
  await asTheOwner(damage.undo);
  assert.deepEqual((await look()).findings, []);
}

describe('the audit of the ledger', () => {
  it('finds nothing after creates, stops, kept disks, volumes, snapshots and charges', async () => {
    const { key } = await newAccount();
    const machine = await create(key);
    await api('POST', `/v1/machines/${machine}/stop`, { key });
    await api('POST', `/v1/machines/${machine}/start`, { key });
    await api('POST', `/v1/machines/${machine}/snapshots`, { key });
    const kept = await api('DELETE', `/v1/machines/${await create(key)}?preserve_storage=true`, { key });
    await create(key, { root_volume_id: kept.json.root_volume_id });
    await api('DELETE', `/v1/volumes/${await createVolume(key)}`, { key });
    assert.deepEqual((await look()).findings, []);
    await checkBooks(bed);
  });

  it('a balance that is not the sum of its entries is reported, and not repaired', async () => {
    const { id } = await newAccount();
    const add = (micros: number) => (owner: Db) =>
      sql`update accounts set balance_micros = balance_micros + ${micros} where id = ${id}`.execute(owner);
    await expectTold('ledger', id, /balance is 1000\.000007 EUR, but the entries sum to 1000\.000000/, {
      make: add(7),
      undo: add(-7),
    });
  });

  it('an entry whose own balance is wrong is reported, and not repaired', async () => {
    const { id } = await newAccount();
    const { id: entry } = await db
      .selectFrom('ledger')
      .select('id')
      .where('account_id', '=', id)
      .executeTakeFirstOrThrow();
    const add = (micros: number) => (owner: Db) =>
      sql`update ledger set balance_micros = balance_micros + ${micros} where id = ${entry}`.execute(owner);
    await expectTold(
      'ledger',
      entry,
      /The entry has the balance 1000\.000009 EUR, but the entries up to it sum to 1000\.000000/,
      {
        make: add(9),
        undo: add(-9),
      },
    );
  });

  it('a charge that the meters do not explain is reported by kind of use, and not repaired', async () => {
    const { id, key } = await newAccount();
    await api('DELETE', `/v1/machines/${await create(key)}`, { key });
    const entry = uuidv7();
    const account = sql`where id = ${id}`;
    await expectTold('ledger', id, /^The account was charged 0\.\d{6} EUR for memory instead of 0\.\d{6}\.$/, {
      make: (owner) =>
        sql`
        with charged as (update accounts set balance_micros = balance_micros - 5, activity_at = activity_at
          + interval '1 ms', charged_until = activity_at + interval '1 ms' ${account} returning *)
        insert into ledger (id, account_id, kind, amount_micros, sales_memory_micros, balance_micros, charged_from,
          charged_to, created_at)
        select ${entry}, id, 'charge', -5, 5, balance_micros, activity_at, activity_at, activity_at
        from charged`.execute(owner),
      undo: async (owner) => {
        await sql`delete from ledger where id = ${entry}`.execute(owner);
        await sql`update accounts set balance_micros = balance_micros + 5 ${account}`.execute(owner);
      },
    });
  });

  it('a charge that is missing is reported, and not repaired', async () => {
    const { id, key } = await newAccount();
    const machine = await create(key);
    // The meter has ended and was charged. Then it is made an hour longer.
    await api('DELETE', `/v1/machines/${machine}`, { key });
    const add = (hours: number) => async (owner: Db) => {
      await sql`update meters set started_at = started_at - ${hours} * interval '1 hour'
        where resource_id = ${machine}`.execute(owner);
      await sql`update activity set created_at = created_at - ${hours} * interval '1 hour'
        where machine_id = ${machine} and action = 'machine.created'`.execute(owner);
      await sql`update prices set created_at = created_at - ${hours} * interval '1 hour'`.execute(owner);
    };
    await expectTold('ledger', id, /for vcpu instead of 0\.05.*for memory instead of 0\.016.*for storage instead of/, {
      make: add(1),
      undo: add(-1),
    });
  });

  it('a charge with the wrong sign is reported, and not repaired', async () => {
    const { id: accountId } = await newAccount();
    const id = uuidv7();
    await asTheOwner((owner) =>
      sql`insert into ledger (id, account_id, kind, amount_micros, sales_vcpu_micros, charged_from, charged_to)
        values (${id}, ${accountId}, 'charge', 5, -5, now(), now())`.execute(owner),
    );
    const { findings, fixed } = await fix();
    assert.deepEqual(fixed, []);
    assert(findings.some(({ subject, detail }) => subject === id && /charge of 0\.000005 EUR/.test(detail)));
    await asTheOwner((owner) => owner.deleteFrom('ledger').where('id', '=', id).execute());
    assert.deepEqual((await look()).findings, []);
  });

  it('an account that was not charged for a minute is reported, and a fix charges it', async () => {
    const { id, key } = await newAccount();
    const machine = await create(key);
    await asTheOwner(async (owner) => {
      const back = sql`interval '2 minutes'`;
      await sql`update accounts set charged_until = charged_until - ${back} where id = ${id}`.execute(owner);
      await sql`update meters set started_at = started_at - ${back} where resource_id = ${machine}`.execute(owner);
      await sql`update activity set created_at = created_at - ${back} where machine_id = ${machine}`.execute(owner);
      await sql`update prices set created_at = created_at - ${back}`.execute(owner);
    });
    assert.match((await expectOne('ledger', id, /last charged up to .* more than a minute ago/)) ?? '', /charge it/);
    await expectMended('ledger', id);
    const charges = db.selectFrom('ledger').select('id').where('account_id', '=', id).where('kind', '=', 'charge');
    assert.equal((await charges.execute()).length, 1);
  });

  it('a time without money that contradicts the balance is corrected', async () => {
    const { id } = await newAccount();
    await sql`update accounts set empty_since = now() where id = ${id}`.execute(db);
    await expectOne('ledger', id, /balance is 1000\.000000 EUR, but the wallet counts as empty/);
    await expectMended('ledger', id);
    const entry = { accountId: id, kind: 'correction', amountMicros: -1_000_000_000, note: '' } as const;
    await inTransaction(db, (tx) => addEntry(tx, entry));
    await sql`update accounts set empty_since = null where id = ${id}`.execute(db);
    await expectOne('ledger', id, /balance is 0\.000000 EUR, but the wallet counts as not empty/);
    await expectMended('ledger', id);
  });
});

describe('the audit of the meters', () => {
  it('an open meter of a resource that does not exist is closed, and the account pays for it until then', async () => {
    const { id, key } = await newAccount();
    const volume = await createVolume(key);
    // The volume is gone as if its transition had left the meter open.
    await asTheOwner((owner) => owner.deleteFrom('volumes').where('id', '=', volume).execute());
    await sql`update accounts set used_storage_gb = 0, used_volumes = 0 where id = ${id}`.execute(db);
    await sql`update hosts set reserved_disk_gb = reserved_disk_gb - 7`.execute(db);
    bed.host.volumes.delete(volume);
    await expectOne('meter', volume, /The volume is not in use, but has an open meter/);
    await expectMended('meter', volume);
    const [meter] = await metersOf(volume);
    const account = await db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    assert.equal(Number(meter?.ended_at), Number(account.charged_until));
  });

  it('a missing meter is opened, for a machine, a volume and a snapshot', async () => {
    const { key } = await newAccount();
    const machine = await create(key, { metadata: { team: 'a' } });
    const snapshot = (await api('POST', `/v1/machines/${machine}/snapshots`, { key })).json.id;
    const volume = await createVolume(key);
    for (const id of [machine, snapshot, volume]) {
      const [before] = await metersOf(id);
      assert(before);
      // The meter ended too early, and what it had cost was charged.
      await sql`
        with now as (update accounts set activity_at = activity_at + interval '1 ms' where id = ${before.account_id}
          returning activity_at)
        update meters set ended_at = now.activity_at from now where resource_id = ${id}`.execute(db);
      await expectOne('meter', id, /is in use, but has no open meter/);
      await expectMended('meter', id);
      const [, meter, ...others] = await metersOf(id);
      assert.deepEqual(others, []);
      const { vcpus, memory_mb, storage_gb, snapshot_mb, metadata } = before;
      assert.deepEqual(
        { ...meter, id: 0, started_at: 0 },
        { ...before, ...{ vcpus, memory_mb, storage_gb, snapshot_mb, metadata }, id: 0, started_at: 0 },
      );
    }
  });

  it('a meter of a wrong size is replaced by one of the right size, and the past stays as it was', async () => {
    const { key } = await newAccount();
    const machine = await create(key);
    await asTheOwner((owner) => sql`update meters set vcpus = 3 where resource_id = ${machine}`.execute(owner));
    await expectOne('meter', machine, /machine counts 3 vCPUs, 1024 MiB, .* instead of 1 vCPUs, 1024 MiB,/);
    await expectMended('meter', machine);
    const [wrong, right] = await metersOf(machine);
    assert.deepEqual([wrong?.vcpus, right?.vcpus], [3, 1]);
    assert.equal(Number(wrong?.ended_at), Number(right?.started_at));
  });

  it('a meter of a price that is not in force is replaced', async () => {
    const { id, key } = await newAccount();
    const volume = await createVolume(key);
    const list = { vcpu_hour_micros: 1, memory_gib_hour_micros: 1, storage_gib_hour_micros: 1 };
    const priceId = await inTransaction(db, (tx) => setPrices(tx, { ...list, snapshot_gib_hour_micros: 1 }));
    // All other accounts have open meters as well.
    const { findings } = await look();
    assert(
      findings.some(({ subject, detail }) => subject === volume && detail.includes(`list 1 instead of ${priceId}`)),
      JSON.stringify(findings),
    );
    assert.deepEqual((await fix()).findings, []);
    const [, meter] = await metersOf(volume);
    assert.deepEqual([meter?.price_id, meter?.account_id], [priceId, id]);
    await checkBooks(bed);
  });

  it('an open meter of another account is reported, and not repaired', async () => {
    const [{ key }, other] = [await newAccount(), await newAccount()];
    const volume = await createVolume(key);
    const [meter] = await metersOf(volume);
    const give = (accountId: string) => (owner: Db) =>
      sql`update meters set account_id = ${accountId} where id = ${meter?.id}`.execute(owner);
    await asTheOwner(give(other.id));
    const { findings, fixed } = await fix();
    assert.deepEqual(fixed, []);
    assert(findings.every(({ subject, fix: mend }) => subject === volume && mend === null));
    assert(findings.some(({ detail }) => detail.includes(`has an open meter of another account, ${other.id}`)));
    await asTheOwner(give(meter?.account_id ?? ''));
    assert.deepEqual((await look()).findings, []);
  });

  it('two meters of a resource that cover the same time are reported, and not repaired', async () => {
    const volume = await createVolume(bed.keys.full);
    await expectTold('meter', volume, /begins at .*, before the previous meter ends/, {
      make: (owner) =>
        sql`
        insert into meters (account_id, resource_kind, resource_id, storage_gb, price_id, started_at, ended_at)
        select account_id, resource_kind, resource_id, storage_gb, price_id, started_at + interval '1 ms',
          started_at + interval '2 ms' from meters where resource_id = ${volume}`.execute(owner),
      undo: (owner) => sql`delete from meters where resource_id = ${volume} and ended_at <> 'infinity'`.execute(owner),
    });
  });

  it('meters that open and close during the audit are no finding', async () => {
    const { key } = await newAccount();
    let isLooking = true;
    const churn = async () => {
      while (isLooking) {
        const id = await create(key);
        await api('POST', `/v1/machines/${id}/stop`, { key });
        await api('DELETE', `/v1/machines/${id}`, { key });
      }
    };
    const churning = Promise.all([churn(), churn(), churn()]);
    try {
      for (let round = 0; round < 10; round++) assert.deepEqual((await look()).findings, []);
    } finally {
      isLooking = false;
    }
    await churning;
    await checkBooks(bed);
  });
});

describe('the audit of the feed', () => {
  /** Moves an entry about a machine, volume or snapshot by some milliseconds. */
  const shift = (id: string, action: string, ms: number) => (owner: Db) =>
    sql`update activity set created_at = created_at + ${ms} * interval '1 ms'
      where action = ${action} and ${id} in (machine_id, metadata ->> 'volume_id', metadata ->> 'snapshot_id')`.execute(
      owner,
    );

  it('an entry that is a millisecond away from its meter is reported, and not repaired', async () => {
    const key = bed.keys.full;
    const machine = await create(key);
    await api('POST', `/v1/machines/${machine}/stop`, { key });
    const started = (await api('POST', `/v1/machines/${machine}/start`, { key })).status;
    assert.equal(started, 200);
    const snapshot = (await api('POST', `/v1/machines/${machine}/snapshots`, { key })).json.id;
    const volume = await createVolume(key);
    const cases: [id: string, action: string][] = [
      [machine, 'machine.created'],
      [machine, 'machine.started'],
      [machine, 'machine.stopped'],
      [snapshot, 'snapshot.created'],
      [volume, 'volume.created'],
    ];
    for (const [id, action] of cases) {
      await expectTold('meter', id, new RegExp(`The feed has ${action} at .*, but no meter changes at that time`), {
        make: shift(id, action, -1),
        undo: shift(id, action, 1),
      });
    }
    for (const path of [`snapshots/${snapshot}`, `volumes/${volume}`, `machines/${machine}`]) {
      await api('DELETE', `/v1/${path}`, { key });
    }
    const removals = [
      [machine, 'machine.destroyed'],
      [snapshot, 'snapshot.deleted'],
      [volume, 'volume.deleted'],
    ] as const;
    for (const [id, action] of removals) {
      await expectTold('meter', id, new RegExp(`The feed has ${action} at .*, but a meter ends after that time`), {
        make: shift(id, action, -1),
        undo: shift(id, action, 1),
      });
    }
  });

  it('a meter of a running machine that begins before the machine did is reported, and not repaired', async () => {
    const key = bed.keys.full;
    const machine = await create(key);
    await api('POST', `/v1/machines/${machine}/stop`, { key });
    const make = (owner: Db) =>
      sql`insert into meters (account_id, resource_kind, resource_id, vcpus, price_id, started_at, ended_at)
        select account_id, 'machine', machine_id::uuid, 1, 0, created_at - interval '1 ms', created_at
        from activity where machine_id = ${machine} and action = 'machine.created'`.execute(owner);
    const undo = (owner: Db) =>
      sql`delete from meters where resource_id = ${machine} and storage_gb = 0`.execute(owner);
    await expectTold('meter', machine, /of the machine begins at .*, but the feed has no start then/, { make, undo });
  });
});
