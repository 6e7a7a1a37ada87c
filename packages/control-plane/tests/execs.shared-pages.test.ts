// Tests of the pages that event streams of one job share.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type EncodedPage, type PageName, SharedPages } from '../src/execs/shared-pages.ts';

const NAME: PageName = { execId: 'job', stream: 'stdout', offset: 0, limit: 100 };
const pageOf = (bytes: number): Omit<EncodedPage, 'readers'> => ({
  event: Buffer.alloc(bytes),
  nextOffset: bytes,
  hasBytes: bytes > 0,
  isLast: false,
  reachesEnd: true,
});
const never = new AbortController().signal;

/** Returns a `load` function whose calls the test answers one by one. */
function loads() {
  const begun: { signal: AbortSignal; answer: (page: Omit<EncodedPage, 'readers'>) => void; fail: () => void }[] = [];
  const load = (signal: AbortSignal) => {
    const { promise, resolve, reject } = Promise.withResolvers<Omit<EncodedPage, 'readers'>>();
    begun.push({ signal, answer: resolve, fail: () => reject(new Error('the host is away')) });
    return promise;
  };
  return { begun, load };
}

describe('shared pages', () => {
  it('are loaded once for all who ask at the same offset, also later (RES-10)', async () => {
    const pages = new SharedPages(1000);
    const { begun, load } = loads();
    const both = Promise.all([pages.read(NAME, load, never), pages.read(NAME, load, never)]);
    begun[0]?.answer(pageOf(10));
    const [first, second] = await both;
    assert.equal(first, second);
    assert.equal(await pages.read(NAME, load, never), first);
    assert.equal(begun.length, 1);
    void pages.read({ ...NAME, offset: 10 }, load, never);
    assert.equal(begun.length, 2);
  });

  it('are loaded on when one reader goes, and given up when all have gone (RES-10)', async () => {
    const pages = new SharedPages(1000);
    const { begun, load } = loads();
    const [one, two] = [new AbortController(), new AbortController()];
    const first = pages.read(NAME, load, one.signal);
    const second = pages.read(NAME, load, two.signal);
    one.abort();
    await assert.rejects(first);
    assert.equal(begun[0]?.signal.aborted, false);
    two.abort();
    await assert.rejects(second);
    assert.equal(begun[0]?.signal.aborted, true);
    void pages.read(NAME, load, never);
    assert.equal(begun.length, 2, 'a later reader begins anew');
  });

  it('are kept up to a number of bytes, and those without bytes and failures not at all (RES-10)', async () => {
    const pages = new SharedPages(250);
    const { begun, load } = loads();
    const read = async (offset: number, bytes: number) => {
      const page = pages.read({ ...NAME, offset }, load, never);
      begun.at(-1)?.answer(pageOf(bytes));
      await page;
    };
    for (const offset of [0, 100, 200]) await read(offset, 100);
    assert.equal(begun.length, 3);
    await read(200, 100);
    await read(100, 100);
    assert.equal(begun.length, 3, 'the newest two are kept');
    await read(0, 100);
    assert.equal(begun.length, 4, 'the oldest was dropped');
    await read(300, 0);
    await read(300, 0);
    assert.equal(begun.length, 6);
    const failing = pages.read({ ...NAME, offset: 400 }, load, never);
    begun.at(-1)?.fail();
    await assert.rejects(failing, /the host is away/);
    await read(400, 10);
    assert.equal(begun.length, 8);
  });
});
