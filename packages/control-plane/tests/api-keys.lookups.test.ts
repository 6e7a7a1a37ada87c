// Tests how requests with the same API key share a query of the database.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { KeyLookups } from '../src/api-keys/lookups.ts';
import type { KeyCaller } from '../src/api-keys/store.ts';
import type { Db } from '../src/db/database.ts';

/** Lookups whose queries the test answers one by one. */
function lookupsOf() {
  const queries: { key: string; answer: (caller: KeyCaller | undefined) => void; fail: () => void }[] = [];
  const find = (key: string) => {
    const { promise, resolve, reject } = Promise.withResolvers<KeyCaller | undefined>();
    queries.push({ key, answer: resolve, fail: () => reject(new Error('the database is away')) });
    return promise;
  };
  return { queries, lookups: new KeyLookups({} as Db, find) };
}
const caller = { accountId: 'account' } as KeyCaller;

describe('requests with the same API key', () => {
  it('that arrive during a query share the next one, so none gets an answer from before it came (RES-10)', async () => {
    const { queries, lookups } = lookupsOf();
    const first = lookups.find('key');
    const later = [lookups.find('key'), lookups.find('key'), lookups.find('key')];
    const other = lookups.find('other key');
    assert.deepEqual(
      queries.map(({ key }) => key),
      ['key', 'other key'],
    );
    queries[0]?.answer(caller);
    assert.equal(await first, caller);
    await nextTurn();
    assert.equal(queries.length, 3);
    const last = lookups.find('key');
    // The key was revoked after the first query.
    queries[2]?.answer(undefined);
    assert.deepEqual(await Promise.all(later), [undefined, undefined, undefined]);
    await nextTurn();
    assert.equal(queries.length, 4);
    queries[1]?.answer(caller);
    queries[3]?.answer(undefined);
    assert.deepEqual([await other, await last], [caller, undefined]);
    void lookups.find('key');
    assert.equal(queries.length, 5, 'without a query under way, a request asks at once');
  });

  it('all get the error of the query under way, and the next requests ask again (RES-10)', async () => {
    const { queries, lookups } = lookupsOf();
    const first = lookups.find('key');
    const later = [lookups.find('key'), lookups.find('key')];
    queries[0]?.fail();
    for (const one of [first, ...later]) await assert.rejects(one, /away/);
    await nextTurn();
    const next = lookups.find('key');
    assert.equal(queries.length, 2);
    queries[1]?.answer(caller);
    assert.equal(await next, caller);
  });
});
