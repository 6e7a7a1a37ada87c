// Tests of the activity feed: which actions write an entry, the filters, paging while entries are written, the monthly
// partitions, and that nobody can change an entry.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  ACTIVITY_ACTIONS,
  type ActivityEntry,
  checkActivityMetadata,
  type NewActivity,
} from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import { insertAccount } from '../src/accounts/store.ts';
import { createMonth, keepMonths, monthOf } from '../src/activity/partitions.ts';
import { readSearch } from '../src/activity/search.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { asOwner } from '../src/db/database.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { stopMachine } from '../src/machines/actions.ts';
import { keepHouse } from '../src/reconcilers/housekeeping.ts';
import { writeActivity } from '../src/transitions/effects.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16' } });
const { api, host, plane, databaseUrl } = bed;
const { db, log } = plane.app;
let accounts = 0;
async function newAccount() {
  const accountId = await insertAccount(db, { email: `a${accounts++}@example.test`, tier: 'enterprise' });
  return { accountId, key: await insertKey(db, accountId, 'full', 'activity') };
}
type Feed = { activity: ActivityEntry[]; next_cursor: string };
const feed = async (key: string, query = ''): Promise<Feed> => {
  const answer = await api<Feed>('GET', `/v1/activity${query}`, { key });
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
};
const actions = async (key: string, query = '') => (await feed(key, query)).activity.map((entry) => entry.action);
const write = (accountId: string, entries: NewActivity[]) =>
  inTransaction(db, (tx) => writeActivity(tx, accountId, entries));
const started = (machineId: string): NewActivity => ({
  action: 'machine.started',
  actor: 'user',
  machineId,
  metadata: {},
});

describe('the feed', () => {
  it('tells what succeeded, newest first, with the metadata of the specification and nothing of a script', async () => {
    const { key } = await newAccount();
    const { id } = (await api('POST', '/v1/machines', { key, body: { name: 's3cret', vcpus: 2 } })).json;
    const path = `/v1/machines/${id}`;
    await api('POST', `${path}/execs`, { key, body: { command: 'exit 3', timeout_sec: 60 } });
    await bed.settled(async () => (await actions(key)).includes('exec'));
    await api('POST', `${path}/execs`, { key, body: { command: 'sleep', env: { A: 's3cret' } } });
    await api('POST', `${path}/stop`, { key });
    await api('POST', `${path}/stop`, { key });
    await api('POST', `${path}/start`, { key });
    await api('DELETE', path, { key });
    const { activity } = await feed(key);
    assert.deepEqual(
      activity.map(({ action, metadata }) => [action, metadata]),
      [
        ['machine.destroyed', { preserve_storage: false, snapshots_deleted: 0 }],
        ['machine.started', {}],
        ['machine.stopped', {}],
        ['exec', { exit_code: null, timeout_sec: 3600 }],
        ['exec', { exit_code: 3, timeout_sec: 60 }],
        ['machine.created', { stack: 'base', vcpus: 2, memory_mb: 1024, rootfs_gb: 10 }],
      ],
    );
    assert(activity.every((entry) => entry.machine_id === id && entry.actor === 'user'));
    assert(!JSON.stringify(activity).includes('s3cret'));
    const second = await api<Feed>('GET', `${path}/activity`, { key });
    assert.deepEqual(second.json.activity, activity);
    assert.equal((await api('GET', `${path}/activity`)).status, 404);
  });

  it('has no entry of what failed', async () => {
    const { key } = await newAccount();
    host.fault('ensure', 'fail', 1);
    assert.equal((await api('POST', '/v1/machines', { key })).status, 500);
    const { id } = (await api('POST', '/v1/machines', { key })).json;
    await api('POST', `/v1/machines/${id}/stop`, { key });
    host.fault('ensure', 'fail', 1);
    assert.equal((await api('POST', `/v1/machines/${id}/start`, { key })).status, 500);
    host.fault('startJob', 'fail', 1);
    await api('POST', `/v1/machines/${id}/execs`, { key, body: { command: 'true' } });
    host.heal();
    await bed.settled(async () => (await api('GET', `/v1/machines/${id}`, { key })).json.state === 'stopped');
    assert.deepEqual(await actions(key), ['machine.stopped', 'machine.created']);
  });

  it('names the worker that did it', async () => {
    const { key, accountId } = await newAccount();
    const [first, second] = [
      (await api('POST', '/v1/machines', { key })).json.id,
      (await api('POST', '/v1/machines', { key })).json.id,
    ];
    host.end(first, 'stopped', null);
    await bed.settled(async () => (await api('GET', `/v1/machines/${first}`, { key })).json.state === 'stopped');
    await stopMachine(plane.app, accountId, second, 'system:operator');
    const stops = (await feed(key)).activity.filter((entry) => entry.action === 'machine.stopped');
    assert.deepEqual(
      stops.map(({ actor }) => actor),
      ['system:operator', 'system:host'],
    );
  });

  it('takes no metadata key beyond the list, and not one of another type', () => {
    const bad = [
      { action: 'exec', actor: 'user', metadata: { exit_code: 0, timeout_sec: 1, script: 'rm' } },
      { action: 'exec', actor: 'user', metadata: { exit_code: 0 } },
      { action: 'machine.started', actor: 'user', metadata: { name: 'x' } },
      { action: 'volume.deleted', actor: 'user', metadata: { volume_id: 'my disk' } },
      { action: 'snapshot.created', actor: 'user', metadata: { snapshot_id: 5 } },
    ];
    for (const entry of bad) assert.throws(() => checkActivityMetadata(entry as unknown as NewActivity), TypeError);
    assert.equal(Object.keys(ACTIVITY_ACTIONS).length, 12);
  });
});

describe('filters', () => {
  it('combine: category, q, from and to', async () => {
    const { accountId, key } = await newAccount();
    const machineId = '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65';
    const volume_id = '019b7c1e-0000-7b3c-9d2e-4a1f0c8e7b66';
    await write(accountId, [
      started(machineId),
      { action: 'volume.created', actor: 'user', metadata: { volume_id, size_gb: 5 } },
      { action: 'machine.stopped', actor: 'system:spend_guard', machineId, metadata: {} },
    ]);
    assert.deepEqual(await actions(key, '?category=volume'), ['volume.created']);
    assert.deepEqual((await feed(key, '?category=volume')).activity[0]?.machine_id, undefined);
    assert.equal((await actions(key, '?category=all')).length, 3);
    assert.deepEqual(await actions(key, '?q=SPEND_guard'), ['machine.stopped']);
    assert.deepEqual(await actions(key, '?q=Volume.C'), ['volume.created']);
    assert.deepEqual(await actions(key, `?q=${volume_id.slice(0, 13)}`), ['volume.created']);
    assert.equal((await actions(key, `?q=${machineId.toUpperCase()}`)).length, 2);
    assert.deepEqual(await actions(key, `?q=${machineId}&category=volume`), []);
    for (const q of ['%25', 'machine_st', 'nothing', 'machine%stopped', '%5C'])
      assert.deepEqual(await actions(key, `?q=${q}`), []);
    const [newest, middle, oldest] = (await feed(key)).activity.map((entry) => entry.created_at);
    assert.deepEqual(await actions(key, `?from=${middle}`), ['machine.stopped', 'volume.created']);
    assert.deepEqual(await actions(key, `?to=${middle}`), ['volume.created', 'machine.started']);
    assert.deepEqual(await actions(key, `?from=${oldest}&to=${oldest}`), ['machine.started']);
    assert.deepEqual(await actions(key, `?from=${newest}&q=started`), []);
    assert.equal((await actions(key, '?from=0000-01-01T00:00:00Z&to=9999-12-31T23:59:60Z')).length, 3);
  });

  it('that are wrong are a 400', async () => {
    const { key } = await newAccount();
    for (const query of [
      '?category=machines',
      '?category=',
      '?from=yesterday',
      '?from=2026-01-01',
      '?to=2026-01-01T00:00:00Z&from=2026-01-01T00:00:01Z',
      '?page_size=0',
      '?page_size=-1',
      '?page_size=ten',
      '?cursor=nonsense',
      '?cursor=',
      '?offset=3',
      `?q=${'x'.repeat(256)}`,
    ]) {
      const answer = await api('GET', `/v1/activity${query}`, { key });
      assert.deepEqual([answer.status, answer.json.code], [400, 'validation_error'], query);
    }
  });
});

describe('a term that no entry can contain', () => {
  it('is known without a look', () => {
    for (const q of ['--', '-123456789012x', 'zebra', '%', '0123-012-0']) {
      assert.equal(readSearch(q), undefined, q);
    }
    for (const q of ['a', '-', 'ABC-', '01a1fcdc-c8a5-76b8', 'Machine.', 'spend']) assert(readSearch(q), q);
  });
});

describe('paging', () => {
  it('has 50 entries by default and never more than 200', async () => {
    const { accountId, key } = await newAccount();
    const entries = Array.from({ length: 210 }, () => started('019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65'));
    await write(accountId, entries);
    assert.equal((await feed(key)).activity.length, 50);
    assert.equal((await feed(key, '?page_size=1000')).activity.length, 200);
    assert.equal((await feed(key, '?page_size=3')).activity.length, 3);
    const all = await feed(key, '?page_size=200');
    assert.equal((await feed(key, `?page_size=200&cursor=${all.next_cursor}`)).next_cursor, '');
  });

  it('refuses a cursor that was changed, or that is of another account, machine or filter', async () => {
    const [mine, theirs] = [await newAccount(), await newAccount()];
    for (const { accountId } of [mine, theirs])
      await write(
        accountId,
        Array.from({ length: 5 }, () => started('m')),
      );
    const { next_cursor } = await feed(mine.key, '?page_size=2');
    const text = Buffer.from(next_cursor, 'base64url').toString('latin1');
    const later = Buffer.from(
      text.replace(/^\d/, (digit) => String((Number(digit) + 1) % 10)),
      'latin1',
    );
    for (const [key, query] of [
      [theirs.key, `?cursor=${next_cursor}`],
      [mine.key, `?cursor=${next_cursor}&category=machine`],
      [mine.key, `?cursor=${next_cursor}&q=m`],
      [mine.key, `?cursor=${later.toString('base64url')}`],
      [mine.key, `?cursor=${next_cursor.slice(0, -4)}`],
    ] as const) {
      assert.equal((await api('GET', `/v1/activity${query}`, { key })).status, 400, query);
    }
    assert.equal((await feed(mine.key, `?cursor=${next_cursor}`)).activity.length, 3);
  });

  it('while entries are written by many at once neither repeats nor skips one', async () => {
    const { accountId, key } = await newAccount();
    const written: string[] = [];
    let isWriting = true;
    const writer = async (name: number) => {
      for (let count = 0; count < 60; count++) {
        const machineId = `${name}-${count}`;
        await write(accountId, [started(machineId)]);
        written.push(machineId);
      }
    };
    const writers = Promise.all(Array.from({ length: 4 }, (_, name) => writer(name))).then(() => {
      isWriting = false;
    });
    while (isWriting) {
      const known = [...written];
      const seen: string[] = [];
      let cursor = '';
      do {
        const page: Feed = await feed(key, `?page_size=7${cursor && `&cursor=${cursor}`}`);
        seen.push(...page.activity.map((entry) => entry.machine_id ?? ''));
        cursor = page.next_cursor;
      } while (cursor !== '');
      assert.equal(new Set(seen).size, seen.length, 'no entry twice');
      const missed = known.filter((id) => !seen.includes(id));
      assert.deepEqual(missed, [], 'no entry left out');
      await followsOn(key, seen[0]);
    }
    await writers;
  });

  /**
   * Checks that a reader who polls for entries newer than `newest` misses none: no entry is ever inserted before an
   * entry that was already read.
   */
  async function followsOn(key: string, newest: string | undefined): Promise<void> {
    const { activity } = await feed(key, '?page_size=200');
    const at = activity.findIndex((entry) => entry.machine_id === newest);
    const times = activity.map((entry) => entry.created_at);
    assert.deepEqual([...times].sort().reverse(), times);
    assert.equal(new Set(times).size, times.length, 'every entry has a time of its own');
    assert(at >= 0 || newest === undefined || activity.length === 200);
  }
});

describe('an entry', () => {
  it('can be changed or removed by nobody: the role of the application may not', async () => {
    const { accountId } = await newAccount();
    await write(accountId, [started('m')]);
    const { name } = monthOf(new Date());
    for (const statement of [
      sql`update activity set actor = 'user'`,
      sql`delete from activity`,
      sql`truncate activity`,
      sql`drop table activity`,
      sql`delete from ${sql.table(name)}`,
      sql`drop table ${sql.table(name)}`,
      sql`alter table activity detach partition ${sql.table(name)}`,
      sql`update ledger set note = ''`,
      sql`delete from ledger`,
    ]) {
      await assert.rejects(statement.execute(db), /permission denied|must be owner/);
    }
    const { rows } = await sql<{ role: string }>`select current_user as role`.execute(db);
    assert.equal(rows[0]?.role, 'sandbar_app');
  });

  it('and its action are written together or not at all', async () => {
    const { key } = await newAccount();
    const { id } = (await api('POST', '/v1/machines', { key })).json;
    await asOwner(databaseUrl, log, async (owner) => {
      await sql`revoke insert on activity from sandbar_app`.execute(owner);
      assert.equal((await api('POST', `/v1/machines/${id}/stop`, { key })).status, 500);
      assert.equal((await api('GET', `/v1/machines/${id}`, { key })).json.state, 'running');
      await sql`grant insert on activity to sandbar_app`.execute(owner);
    });
    await bed.settled(async () => (await actions(key)).includes('machine.stopped'));
    assert.equal((await api('GET', `/v1/machines/${id}`, { key })).json.state, 'stopped');
  });
});

describe('months', () => {
  it('are made ahead, and dropped whole when all of one is past the retention', async () => {
    const { accountId, key } = await newAccount();
    const [old, kept] = [monthOf(new Date(), -14), monthOf(new Date(), -12)];
    await asOwner(databaseUrl, log, async (owner) => {
      for (const month of [old, kept]) {
        await createMonth(owner, month);
        await sql`insert into activity values (${accountId}, ${month.from}, gen_random_uuid(), 'machine',
          'machine.started', 'user', ${month.name}, '{}')`.execute(owner);
      }
      assert.equal((await actions(key)).length, 2);
      assert.deepEqual(await keepMonths(owner, 365), { made: [], dropped: [old.name] });
      await sql`drop table ${sql.table(monthOf(new Date(), 2).name)}`.execute(owner);
      assert.deepEqual(await keepMonths(owner, 365), { made: [monthOf(new Date(), 2).name], dropped: [] });
    });
    assert.deepEqual(
      (await feed(key)).activity.map((entry) => entry.machine_id),
      [kept.name],
    );
  });

  it('take destroyed machines with them', async () => {
    const { key } = await newAccount();
    const { id } = (await api('POST', '/v1/machines', { key })).json;
    await api('DELETE', `/v1/machines/${id}`, { key });
    await keepHouse(plane.app);
    assert.equal((await api('GET', `/v1/machines/${id}`, { key })).status, 200);
    await sql`update machines set destroyed_at = now() - interval '400 days' where id = ${id}`.execute(db);
    await keepHouse(plane.app);
    assert.equal((await api('GET', `/v1/machines/${id}`, { key })).status, 404);
    assert.equal((await api('GET', `/v1/machines/${id}/activity`, { key })).json.activity.length, 2);
  });
});
