// Tests of the waiting calls to a host that requests share.
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { SharedWaits } from '../src/execs/shared-waits.ts';

const NEVER = new AbortController().signal;
type Asked = { waitMs: number; signal: AbortSignal; answer: (text: string) => void; fail: (error: Error) => void };

/** Waits whose calls to the host the test answers one by one. The answer `ended` is over, any other is not. */
function waitsOf(closing = NEVER) {
  const asked: Asked[] = [];
  const waits = new SharedWaits<string>(closing);
  const ask = (waitMs: number, signal: AbortSignal) => {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    signal.addEventListener('abort', () => reject(new Error('the call was aborted')));
    if (signal.aborted) reject(new Error('the call was aborted'));
    asked.push({ waitMs, signal, answer: resolve, fail: reject });
    return promise;
  };
  const isOver = (answer: string) => answer === 'ended';
  const wait = (waitMs: number, signal = NEVER, key = 'job') => waits.wait({ key, ask, isOver }, waitMs, signal);
  return { asked, wait };
}

/** Lets everything run that does not wait for a timer. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
/** Lets `ms` milliseconds pass. */
async function pass(ms: number): Promise<void> {
  now += ms;
  mock.timers.tick(ms);
  await settle();
}
let now = 0;

describe('requests that wait for the same thing', () => {
  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout'] });
    mock.method(performance, 'now', () => now);
  });
  afterEach(() => {
    mock.timers.reset();
    mock.restoreAll();
  });

  it('cause one call to the host, whose answer all of them get, also one that came late (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const early = Array.from({ length: 100 }, () => wait(60_000));
    await pass(30_000);
    const late = wait(60_000);
    const other = wait(60_000, NEVER, 'another job');
    assert.deepEqual(
      asked.map(({ waitMs }) => waitMs),
      [60_000, 60_000],
      'one call for each job',
    );
    asked[0]?.answer('ended');
    assert.deepEqual(new Set(await Promise.all([...early, late])), new Set(['ended']));
    asked[1]?.answer('ended');
    assert.equal(await other, 'ended');
    void wait(1_000);
    assert.equal(asked.length, 3, 'a request after the answer asks again');
  });

  it('all get the error of the call (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const all = [wait(60_000), wait(1_000), wait(60_000)];
    asked[0]?.fail(new Error('the host is away'));
    for (const one of all) await assert.rejects(one, /the host is away/);
  });

  it('leave one by one when their clients go, and the last one ends the call (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const [one, two] = [new AbortController(), new AbortController()];
    const first = wait(60_000, one.signal);
    const second = wait(60_000, two.signal);
    one.abort(new Error('gone'));
    await assert.rejects(first, /gone/);
    assert.equal(asked[0]?.signal.aborted, false);
    two.abort(new Error('gone too'));
    await assert.rejects(second, /gone too/);
    assert.equal(asked[0]?.signal.aborted, true);
    const third = wait(60_000);
    assert.equal(asked.length, 2, 'a later request begins a new call');
    asked[1]?.answer('ended');
    assert.equal(await third, 'ended');
    await assert.rejects(wait(60_000, one.signal), /gone/);
    assert.equal(asked.length, 2, 'a request whose client has gone asks for nothing');
  });

  it('keep their own time limits: a shorter one is answered with the state of its end (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const long = wait(60_000);
    await pass(1_000);
    const short = [wait(5_000), wait(5_000)];
    await pass(4_999);
    assert.equal(asked.length, 1);
    await pass(1);
    assert.deepEqual(
      asked.map(({ waitMs }) => waitMs),
      [60_000, 0],
      'those whose time ends together ask once',
    );
    asked[1]?.answer('running, 5 bytes');
    assert.deepEqual(await Promise.all(short), ['running, 5 bytes', 'running, 5 bytes']);
    assert.equal(asked[0]?.signal.aborted, false, 'the other goes on waiting');
    asked[0]?.answer('ended');
    assert.equal(await long, 'ended');
  });

  it('get no state from before they came (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const long = wait(60_000);
    const short = wait(1_000);
    await pass(1_000);
    assert.equal(asked.length, 2);
    const next = wait(1_000);
    await pass(1_000);
    assert.equal(asked.length, 3, 'the state that is being read may be older than the request');
    asked[1]?.answer('running, 1 byte');
    asked[2]?.answer('running, 2 bytes');
    assert.deepEqual([await short, await next], ['running, 1 byte', 'running, 2 bytes']);
    asked[0]?.answer('ended');
    await long;
  });

  it('keep their own time limits: a longer one goes on waiting when the time of the call is over (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const short = wait(1_000);
    const long = [wait(3_000), wait(3_000)];
    await pass(1_000);
    asked[0]?.answer('running');
    assert.equal(await short, 'running');
    await settle();
    assert.deepEqual(
      asked.map(({ waitMs }) => waitMs),
      [1_000, 2_000],
    );
    await pass(2_000);
    asked[1]?.answer('still running');
    assert.deepEqual(await Promise.all(long), ['still running', 'still running']);
  });

  it('go on without the one that began the call (RES-10)', async () => {
    const { asked, wait } = waitsOf();
    const gone = new AbortController();
    const first = wait(1_000, gone.signal);
    const second = wait(60_000);
    gone.abort(new Error('gone'));
    await assert.rejects(first, /gone/);
    asked[0]?.answer('ended');
    assert.equal(await second, 'ended');
  });

  it('are answered when the host ends the call before its time, and do not ask again at once', async () => {
    const { asked, wait } = waitsOf();
    const all = [wait(60_000), wait(60_000)];
    await pass(5);
    asked[0]?.answer('running');
    assert.deepEqual(await Promise.all(all), ['running', 'running']);
    assert.equal(asked.length, 1);
  });

  it('all end when the service shuts down, and later ones at once', async () => {
    const closing = new AbortController();
    const { asked, wait } = waitsOf(closing.signal);
    const all = [wait(60_000), wait(1_000)];
    closing.abort();
    for (const one of [...all, wait(60_000)]) await assert.rejects(one, /the call was aborted/);
    assert(asked.every(({ signal }) => signal.aborted));
  });
});
