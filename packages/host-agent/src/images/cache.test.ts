import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { cacheKey, ensureArtifact, hashFolder, replaceLink } from './cache.ts';

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'image-cache-'));
});
after(() => rm(folder, { recursive: true }));

describe('cache key', () => {
  test('depends on the order of lists, not on the order of fields', () => {
    assert.equal(cacheKey({ a: 1, b: { c: 2, d: 3 } }), cacheKey({ b: { d: 3, c: 2 }, a: 1 }));
    assert.notEqual(cacheKey(['a', 'b']), cacheKey(['b', 'a']));
  });

  test('differs when text moves from one input to the next', () => {
    assert.notEqual(cacheKey('ab', 'c'), cacheKey('a', 'bc'));
  });

  test("a folder's hash depends on names, contents and executable bits", async () => {
    const sources = path.join(folder, 'sources');
    await mkdir(path.join(sources, 'sub'), { recursive: true });
    await writeFile(path.join(sources, 'sub', 'a'), 'one');
    const first = await hashFolder(sources);
    assert.equal(await hashFolder(sources), first);

    await writeFile(path.join(sources, 'sub', 'a'), 'two');
    const second = await hashFolder(sources);
    await rm(path.join(sources, 'sub', 'a'));
    await writeFile(path.join(sources, 'sub', 'a'), 'two', { mode: 0o755 });
    const third = await hashFolder(sources);
    assert.equal(new Set([first, second, third]).size, 3);
  });

  test('a missing folder has the hash of an empty folder', async () => {
    await mkdir(path.join(folder, 'empty'));
    assert.equal(await hashFolder(path.join(folder, 'none')), await hashFolder(path.join(folder, 'empty')));
  });
});

describe('artifact', () => {
  test('is built only once', async () => {
    const parent = path.join(folder, 'once');
    let made = 0;
    const make = async (temporary: string) => {
      made += 1;
      await writeFile(path.join(temporary, 'file'), 'content');
    };
    assert.equal((await ensureArtifact(parent, 'key', make)).wasBuilt, true);
    assert.equal((await ensureArtifact(parent, 'key', make)).wasBuilt, false);
    assert.equal(made, 1);
  });

  test('two parallel builds both get the complete artifact and leave nothing else', async () => {
    const parent = path.join(folder, 'race');
    const results = await Promise.all(
      ['a', 'b', 'c'].map((content) =>
        ensureArtifact(parent, 'key', (temporary) => writeFile(path.join(temporary, 'file'), content)),
      ),
    );
    assert.equal(results.filter((result) => result.wasBuilt).length, 1);
    assert.match(await readFile(path.join(parent, 'key', 'file'), 'utf8'), /^[abc]$/);
    assert.deepEqual(await readdir(parent), ['key']);
  });

  test('a failed build leaves nothing', async () => {
    const parent = path.join(folder, 'failure');
    await assert.rejects(
      ensureArtifact(parent, 'key', () => Promise.reject(new Error('broken'))),
      /broken/,
    );
    assert.deepEqual(await readdir(parent), []);
  });

  test('the folder of a dead builder is removed, that of a live builder is kept', async () => {
    const parent = path.join(folder, 'abandoned');
    const startTime = (await readFile('/proc/self/stat', 'latin1')).replace(/^.*\) /s, '').split(' ')[19];
    const alive = `.tmp-${process.pid}-${startTime}-00000000`;
    // Our pid with another start time stands for an earlier process that had the same pid.
    await mkdir(path.join(parent, `.tmp-${process.pid}-1-00000000`), { recursive: true });
    await mkdir(path.join(parent, '.tmp-4194305-1-00000000'));
    await mkdir(path.join(parent, alive));
    await ensureArtifact(parent, 'key', async () => {});
    assert.deepEqual((await readdir(parent)).sort(), [alive, 'key']);
  });
});

test('a link is replaced in one step and leaves no temporary file', async () => {
  const parent = path.join(folder, 'link');
  await mkdir(parent);
  await replaceLink(path.join(parent, 'current'), 'one');
  await replaceLink(path.join(parent, 'current'), 'two');
  assert.equal(await readlink(path.join(parent, 'current')), 'two');
  assert.deepEqual(await readdir(parent), ['current']);
});
