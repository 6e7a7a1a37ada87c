// A failover between two real PostgreSQL servers with streaming replication, under load (CTL-13). Every commit waits
// for the standby. bench/failover.ts does the same with Patroni, several times.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { connectToPrimary } from '../src/db/single.ts';
import { callAdmin } from './support/admin.ts';
import { createDatabase, until } from './support/postgres.ts';
import { runSql, startPostgresPair } from './support/postgres-pair.ts';
import { type Answer, checkBooks, startTestBed } from './support/test-bed.ts';

const pair = await startPostgresPair();
const database = new URL(await createDatabase(pair.primary)).pathname.slice(1);
const databaseUrl = pair.urlOf(database);
const bed = await startTestBed({ databaseUrl, host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 } });
const { api, accountId } = bed;

const create = (key: string) =>
  api('POST', '/v1/machines', { body: { memory_mb: 128 }, headers: { 'idempotency-key': key } });
const credit = async (reference: string) => {
  const path = `/admin/accounts/${accountId}/credit`;
  return callAdmin(bed.plane.app.config.adminSocket, path, { eur: '1', as: 'top-up', reference });
};

/** The loads end with the tests, also when one fails. */
let ended = false;
after(() => {
  ended = true;
});

/** What was acknowledged: the machine of each key, and the references of credits. */
const machines = new Map<string, string>();
const credits = new Set<string>();
const failures: { status: number; retryAfter: string | null; text: string }[] = [];
const note = ({ status, headers, text }: Answer) => {
  failures.push({ status, retryAfter: headers.get('retry-after'), text });
};

/** Sends creates and credits one after the other until `isOver`, and repeats each one until it is acknowledged. */
async function load(name: string, isOver: () => boolean): Promise<void> {
  for (let number = 1; !ended && (!isOver() || number === 1); number++) {
    const key = `${name} ${number}`;
    for (let isDone = false; !isDone && !ended; ) {
      const answer = await create(key);
      if (answer.status < 300) {
        machines.set(key, answer.json.id);
        isDone = true;
      } else {
        note(answer);
      }
    }
    while (!ended && (await credit(key)).status !== 200);
    credits.add(key);
  }
}

describe('a failover of the database', () => {
  it('whose standby does not answer: no write is acknowledged, and no replay of one either', async () => {
    pair.standby.freeze(true);
    try {
      const first = await create('unconfirmed');
      assert.deepEqual([first.status, first.json.code], [503, 'database_unavailable'], first.text);
      // The commit waits on the server. A replay must not tell the client of a machine that a failover would lose.
      const replay = await create('unconfirmed');
      assert.equal(replay.status, 503, replay.text);
    } finally {
      pair.standby.freeze(false);
    }
    await until(async () => (await create('unconfirmed')).status === 200, 'the machine is acknowledged');
  });

  it('fails requests with 503 until it is over, loses no acknowledged write and doubles none', async () => {
    const listener = await connectToPrimary(databaseUrl, {});
    await listener.query('listen fleet');
    let isOver = false;
    const loads = ['one', 'two', 'three'].map((name) => load(name, () => isOver));
    await until(() => machines.size >= 6 && credits.size >= 6, 'writes are acknowledged');
    await pair.primary.kill();
    await until(() => failures.length >= 3, 'requests fail');
    await assert.rejects(connectToPrimary(databaseUrl, {}), /standby and accepts no writes/);
    await pair.promote();
    const before = machines.size;
    await until(() => machines.size >= before + 6, 'requests work again by themselves');

    // Somebody starts the failed primary again, beside its successor. It accepts writes, and comes first in the URL.
    await pair.primary.start();
    await runSql(pair.primary.url, `alter system reset synchronous_standby_names`, 'select pg_reload_conf()');
    const kill = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sandbar-control-plane'`;
    await runSql(pair.standby.url, kill);
    const again = machines.size;
    await until(() => machines.size >= again + 6, 'requests go on');
    isOver = true;
    await Promise.all(loads);
    for (let time = 0; time < 10; time++) {
      const client = await connectToPrimary(databaseUrl, {});
      assert.equal(`${client.port}`, pair.standby.port, 'a new replica uses the successor');
      await client.end();
    }

    assert.deepEqual(
      failures.filter(({ status, retryAfter }) => status !== 503 || !(Number(retryAfter) >= 1)),
      [],
      'every failure was a 503 with Retry-After',
    );
    await checkWrites();
    const [left] = await runSql(withDatabase(pair.primary.url), 'select count(*)::int as n from machines');
    const [right] = await runSql(withDatabase(pair.standby.url), 'select count(*)::int as n from machines');
    assert(Number(left?.n) < Number(right?.n), 'nothing was written to the former primary');

    const next = await connectToPrimary(databaseUrl, {});
    const heard = new Promise((resolve) => next.once('notification', ({ payload }) => resolve(payload)));
    await next.query('listen fleet');
    await next.query(`notify fleet, 'a host'`);
    assert.equal(await heard, 'a host', 'a new listener hears the new primary');
    await next.end();
    await listener.end().catch(() => undefined);
  });
});

const withDatabase = (url: string): string => {
  const own = new URL(url);
  own.pathname = `/${database}`;
  return own.href;
};

async function checkWrites(): Promise<void> {
  const { db } = bed.plane.app;
  const rows = await db.selectFrom('machines').select('id').where('state', '=', 'running').execute();
  const ids = rows.map(({ id }) => id);
  const acknowledged = [...machines.values()];
  assert.equal(new Set(acknowledged).size, acknowledged.length, 'each key has a machine of its own');
  assert.deepEqual(
    acknowledged.filter((id) => !ids.includes(id)),
    [],
    'every acknowledged machine exists',
  );
  const entries = await db.selectFrom('ledger').select('reference').where('kind', '=', 'top-up').execute();
  assert.deepEqual(entries.map(({ reference }) => reference).sort(), [...credits].sort(), 'each credit is there once');
  // A machine whose row was lost with the unsynced commit of its create is removed from its host.
  await bed.settled(() => bed.host.machines.size === acknowledged.length + 1);
  await checkBooks(bed);
}
