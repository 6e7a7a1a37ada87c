// Tests of the gate for requests that wait for jobs.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Gate } from '../src/execs/gate.ts';

/** Work that the test ends. */
function openWork() {
  const ends: (() => void)[] = [];
  const work = () => new Promise<void>((resolve) => ends.push(resolve));
  return { ends, work };
}

describe('the gate of requests that wait', () => {
  it('lets a few work at once, and the next when one has ended (RES-10)', async () => {
    const gate = new Gate(2);
    const { ends, work } = openWork();
    const all = [1, 2, 3, 4].map(() => gate.run('account', work));
    await nextTurn();
    assert.equal(ends.length, 2);
    ends[0]?.();
    await all[0];
    assert.equal(ends.length, 2, 'the request of the work is answered first');
    await nextTurn();
    await nextTurn();
    assert.equal(ends.length, 3);
    for (const end of ends) end();
    await nextTurn();
    await nextTurn();
    for (const end of ends) end();
    await Promise.all(all);
    await nextTurn();
    const again = [gate.run('account', work), gate.run('account', work)];
    assert.equal(ends.length, 6, 'all places are free again, and used at once');
    for (const end of ends) end();
    await Promise.all(again);
  });

  it('lets the accounts take turns, so that one with many requests delays no other account (RES-10)', async () => {
    const gate = new Gate(1);
    const order: string[] = [];
    const run = (account: string) => gate.run(account, () => order.push(account));
    await Promise.all([...Array.from({ length: 20 }, () => run('many')), run('other'), run('other')]);
    assert.deepEqual(order.slice(0, 5), ['many', 'many', 'other', 'many', 'other']);
  });

  it('answers many requests in many turns of the event loop, between which others are served (RES-10)', async () => {
    const gate = new Gate(4);
    let turn = 0;
    let isOver = false;
    const count = async () => {
      for (; !isOver; turn++) await nextTurn();
    };
    const counting = count();
    const turns = new Map<number, number>();
    await Promise.all(
      Array.from({ length: 100 }, () => gate.run('account', () => turns.set(turn, (turns.get(turn) ?? 0) + 1))),
    );
    isOver = true;
    await counting;
    assert(Math.max(...turns.values()) <= 2 * 4, `at most ${Math.max(...turns.values())} in one turn`);
  });

  it('passes on what the work returns and throws, and frees the place', async () => {
    const gate = new Gate(1);
    assert.equal(await gate.run('account', () => 7), 7);
    await assert.rejects(
      gate.run('account', () => Promise.reject(new Error('no'))),
      /no/,
    );
    const fail = () => {
      throw new Error('at once');
    };
    await assert.rejects(gate.run('account', fail), /at once/);
    assert.equal(await gate.run('account', () => 8), 8);
  });
});
