// Tests of transactions and prepared statements: statements sent together fail together, and a schema change by a newer
// replica breaks no request.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { asOwner } from '../src/db/database.ts';
import { isUniqueViolation } from '../src/db/failures.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api } = bed;
const { app } = bed.plane;
const { db } = app;

/** An hour from now. Housekeeping deletes full buckets, so the test's buckets must not become full during the test. */
const LATER = new Date(Date.now() + 3_600_000);
const bucket = (key: string) => db.insertInto('rate_buckets').values({ key, full_at: LATER });
const keysLike = async (pattern: string) =>
  (await db.selectFrom('rate_buckets').select('key').where('key', 'like', pattern).orderBy('key').execute()).map(
    (row) => row.key,
  );

describe('a transaction', () => {
  it('runs statements that are started together in their order, and commits all of them', async () => {
    const answers = await inTransaction(db, (tx) =>
      Promise.all([
        tx.insertInto('rate_buckets').values({ key: 'together 1', full_at: LATER }).execute(),
        tx.selectFrom('rate_buckets').select('key').where('key', 'like', 'together%').execute(),
        tx.insertInto('rate_buckets').values({ key: 'together 2', full_at: LATER }).execute(),
        tx.selectFrom('rate_buckets').select('key').where('key', 'like', 'together%').execute(),
      ]),
    );
    assert.deepEqual([answers[1].length, answers[3].length], [1, 2]);
    assert.deepEqual(await keysLike('together%'), ['together 1', 'together 2']);
  });

  it('keeps nothing when one of its statements fails, and throws the first failure', async () => {
    await bucket('taken').execute();
    const insert = (tx: Parameters<Parameters<typeof inTransaction>[1]>[0], key: string) =>
      tx.insertInto('rate_buckets').values({ key, full_at: LATER }).execute();
    await assert.rejects(
      inTransaction(db, (tx) => Promise.all([insert(tx, 'lost 1'), insert(tx, 'taken'), insert(tx, 'lost 2')])),
      (error) => isUniqueViolation(error, 'rate_buckets_pkey'),
    );
    assert.deepEqual(await keysLike('lost%'), []);
    await bucket('after').execute();
    assert.deepEqual(await keysLike('after'), ['after'], 'the connection is usable again');
  });

  it('keeps nothing when a statement fails whose answer nobody awaits, and throws its error', async () => {
    await bucket('unawaited').execute();
    await assert.rejects(
      inTransaction(db, async (tx) => {
        await tx.insertInto('rate_buckets').values({ key: 'before unawaited', full_at: LATER }).execute();
        const ignored = tx.insertInto('rate_buckets').values({ key: 'unawaited', full_at: LATER }).execute();
        ignored.catch(() => undefined);
      }),
      (error) => isUniqueViolation(error, 'rate_buckets_pkey'),
    );
    assert.deepEqual(await keysLike('before unawaited'), []);
  });

  it('keeps nothing when its work throws', async () => {
    const work = inTransaction(db, async (tx) => {
      await tx.insertInto('rate_buckets').values({ key: 'thrown', full_at: LATER }).execute();
      throw new Error('on purpose');
    });
    await assert.rejects(work, /on purpose/);
    assert.deepEqual(await keysLike('thrown'), []);
  });
});

describe('a column that a newer replica adds', () => {
  it('disturbs no request, though every statement is prepared', async () => {
    const { json: machine } = await api('POST', '/v1/machines');
    // Use many connections of the pool, so that each of them has prepared the statement.
    await Promise.all(Array.from({ length: 40 }, () => api('GET', `/v1/machines/${machine.id}`)));
    await asOwner(app.config.databaseUrl, app.log, async (owner) => {
      for (const table of ['machines', 'accounts', 'operations']) {
        await sql`alter table ${sql.table(table)} add column from_the_future integer`.execute(owner);
      }
    });
    const answers = await Promise.all([
      ...Array.from({ length: 40 }, () => api('GET', `/v1/machines/${machine.id}`)),
      ...Array.from({ length: 5 }, () => api('POST', '/v1/machines')),
      api('POST', `/v1/machines/${machine.id}/stop`),
    ]);
    const bad = answers.filter(({ status }) => status !== 200 && status !== 201);
    assert.deepEqual(
      bad.map(({ text }) => text),
      [],
    );
  });
});
