// Tests of the turns in which event streams work.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Turns } from '../src/execs/turns.ts';

const ONE_AT_A_TIME = { sliceMs: 0, share: 0.25, savedMs: 0, chargeMaxMs: Number.POSITIVE_INFINITY };
/** Keeps the processor busy. */
const work = (ms: number) => {
  const began = performance.now();
  while (performance.now() - began < ms);
};

describe('the turns of event streams', () => {
  it('go around the accounts, so that one with many streams delays no other account (RES-10)', async () => {
    const turns = new Turns(ONE_AT_A_TIME, () => false);
    const order: string[] = [];
    const run = (account: string) => turns.run(account, () => order.push(account));
    await Promise.all([...Array.from({ length: 20 }, () => run('many')), run('other'), run('other')]);
    assert.deepEqual(order.slice(0, 5), ['many', 'other', 'many', 'other', 'many']);
  });

  it('take only their share of the time while there are other requests (RES-10)', async () => {
    const turns = new Turns(ONE_AT_A_TIME, () => true);
    const began = performance.now();
    let workedMs = 0;
    const times = 20;
    for (let at = 0; at < times; at++) {
      await turns.run('account', () => {
        // The time that has gone by must be enough for the work before.
        assert((performance.now() - began) * ONE_AT_A_TIME.share >= workedMs - 0.5, `after ${workedMs} ms of work`);
        const from = performance.now();
        if (at % 2 === 0) work(1);
        workedMs += performance.now() - from;
      });
      if (at % 2 === 1) {
        const from = performance.now();
        turns.runNow(() => work(1));
        workedMs += performance.now() - from;
      }
    }
  });

  it('wait for nothing when there are no other requests, and later make up for nothing', async () => {
    // With this share, a millisecond of work would be followed by a wait of days.
    let hasOthers = false;
    const turns = new Turns({ ...ONE_AT_A_TIME, share: 1e-9 }, () => hasOthers);
    await turns.run('account', () => work(1));
    await turns.run('account', () => work(1));
    hasOthers = true;
    await turns.run('account', () => work(1));
    hasOthers = false;
    await turns.run('account', () => undefined);
  });

  it('make up for no more than chargeMaxMs after a pause of the process', async () => {
    // With this share, the pause would be followed by a wait of days.
    const turns = new Turns({ ...ONE_AT_A_TIME, share: 1e-8, chargeMaxMs: 1e-8 }, () => true);
    await turns.run('account', () => work(5));
    await turns.run('account', () => undefined);
  });

  it('pass on what the work returns and throws', async () => {
    const turns = new Turns(ONE_AT_A_TIME, () => false);
    assert.equal(await turns.run('account', () => 7), 7);
    const fail = () => {
      throw new Error('no');
    };
    await assert.rejects(turns.run('account', fail), /no/);
    await assert.rejects(
      turns.run('account', () => Promise.reject(new Error('later'))),
      /later/,
    );
  });
});
