// Tests when the comparisons of hosts run, with comparisons that only count: how many at once, in which order, and what
// happens with the connections of a host afterwards.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { App } from '../src/app.ts';
import { type Comparison, createRounds } from '../src/reconcilers/rounds.ts';
import { until } from './support/postgres.ts';

const HOUR_MS = 3_600_000;
const WITHIN_MS = 30_000;

/** Rounds over fake hosts. `log` lists each begin and end of a comparison, and each close of idle connections. */
function startRounds(hostCount: number, pausesMs: readonly number[]) {
  const log: { hostId: string; what: string }[] = [];
  const ids = Array.from({ length: hostCount }, (_, index) => `host ${index}`);
  const closeIdle = (hostId: string) => log.push({ hostId, what: 'closed' });
  const comparisons = pausesMs.map(
    (pauseMs, kind): Comparison => ({
      name: `comparison ${kind}`,
      pauseMs: { shortest: pauseMs, longest: pauseMs },
      begin: (hostId) => async () => {
        log.push({ hostId, what: `begin ${kind}` });
        await delay(1);
        log.push({ hostId, what: `end ${kind}` });
        return { size: 0, isSettled: true };
      },
    }),
  );
  const hosts = { listenedIds: () => ids, closeIdle } as unknown as App['hosts'];
  const app = { hosts, closing: new AbortController().signal } as unknown as App;
  const rounds = createRounds(app, comparisons);
  const ofHost = (hostId: string) => log.filter((entry) => entry.hostId === hostId).map(({ what }) => what);
  const countOf = (what: string) => log.filter((entry) => entry.what === what).length;
  return { rounds, log, ids, ofHost, countOf };
}

describe('the comparisons of hosts', () => {
  it('follow each other for one host, and its idle connections are closed at the end if there are many hosts', async () => {
    const { rounds, log, ids, ofHost, countOf } = startRounds(100, [HOUR_MS, HOUR_MS]);
    await rounds.pass();
    await until(() => countOf('closed') === 100, 'all hosts were compared', WITHIN_MS);
    const one = ['begin 0', 'end 0', 'begin 1', 'end 1', 'closed'];
    for (const id of ids) assert.deepEqual(ofHost(id), one);
    const open = new Set<string>();
    for (const { hostId, what } of log) {
      if (what === 'closed') open.delete(hostId);
      else open.add(hostId);
      assert(open.size <= 6, 'no more than six hosts have a connection at once');
    }
  });

  it('leave the connections open if there are few hosts', async () => {
    const { rounds, countOf } = startRounds(99, [HOUR_MS]);
    await rounds.pass();
    await until(() => countOf('end 0') === 99, 'all hosts were compared', WITHIN_MS);
    await rounds.settled();
    assert.equal(countOf('closed'), 0);
  });

  it('run together when one is due and the other one would be soon', async () => {
    // Pauses differ by a twentieth at random, so the second comparison is due 5 to 20 ms after the first.
    const { rounds, countOf } = startRounds(1, [200, 213]);
    await rounds.pass();
    await until(() => countOf('end 1') === 1, 'the first comparisons have ended', WITHIN_MS);
    while (countOf('begin 0') + countOf('begin 1') === 2) {
      await rounds.pass();
      await delay(1);
    }
    // No further pass starts a comparison.
    await until(() => countOf('end 0') === 2 && countOf('end 1') === 2, 'both ran again', WITHIN_MS);
  });
});
