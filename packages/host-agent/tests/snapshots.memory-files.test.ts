// Tests the files of a memory snapshot: holes take no space, and changed files are never loaded.
import assert from 'node:assert/strict';
import {
  closeSync,
  fstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { isSealed } from '../src/hypervisor/sealed-memory.ts';
import { checksOf, loadMemoryFiles, type MemoryChecks, memoryPlace } from '../src/snapshots/memory-files.ts';
import { SnapshotMemories } from '../src/snapshots/snapshot-memories.ts';
import { BLOCK_BYTES, forUsedBlocks, sumOfSparseFile, writeUsed } from '../src/storage/sparse-file.ts';

const BYTES = 64 * BLOCK_BYTES + 4096;
const PAGES = [0, 5, 256 * 9 + 3, 256 * 9 + 200, 256 * 40, 256 * 64];

const dir = mkdtempSync(join(tmpdir(), 'sandbar-memory-'));
after(() => rmSync(dir, { recursive: true }));

function pageOf(number: number): Buffer {
  return Buffer.alloc(4096, `page ${number} `);
}

/** Makes a snapshot whose memory has some pages with data and holes elsewhere. */
async function makeSnapshot(name: string) {
  const place = memoryPlace(join(dir, name), BYTES);
  rmSync(join(dir, name), { recursive: true, force: true });
  mkdirSync(join(dir, name));
  writeFileSync(place.memoryPath, '');
  truncateSync(place.memoryPath, BYTES);
  writeAt(place.memoryPath, ...PAGES.map((page) => [page * 4096, pageOf(page)] as const));
  writeFileSync(place.statePath, 'the devices');
  return { place, dir: join(dir, name), checks: await checksOf(place, await sumOfSparseFile(place.memoryPath, BYTES)) };
}

function writeAt(path: string, ...parts: (readonly [at: number, bytes: Buffer])[]): void {
  const fd = openSync(path, 'r+');
  for (const [at, bytes] of parts) writeSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
}

/** Loads a snapshot. On failure closes the descriptor and throws the reason. */
async function load(folder: string, checks: MemoryChecks): Promise<{ fd: number; usedBytes: number }> {
  const { fd, ready } = loadMemoryFiles(folder, checks);
  try {
    return { fd, usedBytes: await ready };
  } catch (error) {
    assert.equal(isSealed(fd), false);
    closeSync(fd);
    throw error;
  }
}

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

describe('files of a memory snapshot', () => {
  it('are loaded unchanged and sealed, and take only the memory of their data', async () => {
    const snapshot = await makeSnapshot('whole');
    const { fd, usedBytes } = await load(snapshot.dir, snapshot.checks);
    const loaded = Buffer.alloc(BYTES);
    readSync(fd, loaded, 0, BYTES, 0);
    assert.ok(loaded.equals(readFileSync(snapshot.place.memoryPath)));
    assert.ok(isSealed(fd));
    assert.ok(usedBytes < 16 * 4096, `${usedBytes}`);
    assert.ok(fstatSync(fd).blocks * 512 <= usedBytes, 'holes stay holes');
    closeSync(fd);
  });

  it('one byte that changed, anywhere, is noticed (CLN-5)', async () => {
    for (const page of PAGES) {
      const { place, dir, checks } = await makeSnapshot('flipped');
      writeAt(place.memoryPath, [page * 4096 + 100, Buffer.from('X')]);
      await assert.rejects(load(dir, checks), /memory is not what was saved/);
    }
    const { place, dir, checks } = await makeSnapshot('flipped');
    writeAt(place.memoryPath, [20 * BLOCK_BYTES, Buffer.from('X')]);
    await assert.rejects(load(dir, checks), /memory is not what was saved/, 'where a hole was');
    writeFileSync(place.statePath, 'other devices');
    await assert.rejects(load(dir, checks), /state is not what was saved/);
  });

  it('a moved page, a truncated file and a missing file are noticed', async () => {
    const { place, dir, checks } = await makeSnapshot('moved');
    // Move a page, unchanged, to the next block.
    writeAt(place.memoryPath, [40 * BLOCK_BYTES, Buffer.alloc(4096)], [41 * BLOCK_BYTES, pageOf(40 * 256)]);
    await assert.rejects(load(dir, checks), /memory is not what was saved/);
    truncateSync(place.memoryPath, BYTES - 2048);
    await assert.rejects(load(dir, checks), /the file ends at/);
    rmSync(place.memoryPath);
    await assert.rejects(load(dir, checks), { code: 'ENOENT' });
  });

  it('a failed load leaves only the descriptor that it returned', async () => {
    const { place, dir, checks } = await makeSnapshot('leak');
    writeAt(place.memoryPath, [0, Buffer.from('X')]);
    const before = openDescriptors();
    await assert.rejects(load(dir, checks));
    assert.equal(openDescriptors(), before);
  });
});

describe('a sparse file', () => {
  it('has the same checksum whether its zeros are holes or written', async () => {
    const { place, checks } = await makeSnapshot('zeros');
    writeAt(place.memoryPath, [4096, Buffer.alloc(4 * 4096)], [30 * BLOCK_BYTES, Buffer.alloc(2 * BLOCK_BYTES)]);
    assert.equal(await sumOfSparseFile(place.memoryPath, BYTES), checks.memory_sum);
  });

  it('is read only where it has data', async () => {
    const { place } = await makeSnapshot('holes');
    const file = await open(place.memoryPath);
    const seen: [offset: number, length: number][] = [];
    await forUsedBlocks(file, BYTES, async ({ offset, bytes }) => void seen.push([offset, bytes.length]));
    await file.close();
    const whole = [0, 9, 40].map((block) => [block * BLOCK_BYTES, BLOCK_BYTES]);
    assert.deepEqual(
      seen.sort(([a], [b]) => a - b),
      [...whole, [64 * BLOCK_BYTES, 4096]],
    );
  });

  it('gets no zeros except short runs between pages of data', async () => {
    const path = join(dir, 'written');
    const file = await open(path, 'w+');
    const bytes = Buffer.alloc(BLOCK_BYTES);
    for (const page of [0, 2, 100]) pageOf(page).copy(bytes, page * 4096);
    assert.equal(await writeUsed(file.fd, bytes, 0), 4 * 4096);
    await file.close();
    assert.equal(statSync(path).blocks * 512, 4 * 4096);
  });

  it('an error is thrown only after all running work has ended', async () => {
    const { place } = await makeSnapshot('failing');
    const file = await open(place.memoryPath);
    let underWay = 0;
    const work = async () => {
      underWay++;
      await new Promise((resolve) => setImmediate(resolve));
      underWay--;
      throw new Error('no room');
    };
    await assert.rejects(forUsedBlocks(file, BYTES, work), /no room/);
    assert.equal(underWay, 0);
    await file.close();
  });
});

describe('memory of snapshots that machines are made from', () => {
  const load = (bytes: number) => () => {
    loads++;
    return { fd: openSync('/dev/null', 'r'), ready: Promise.resolve(bytes) };
  };
  let loads = 0;

  it('is loaded once for all machines that start meanwhile, and closed after the last', async () => {
    const memories = new SnapshotMemories(0);
    loads = 0;
    const fds = new Set<number>();
    await Promise.all(
      [1, 2, 3].map(() =>
        memories.use('a', load(10), async ({ fd }) => {
          fds.add(fd);
          await new Promise((resolve) => setImmediate(resolve));
          assert.ok(fstatSync(fd));
        }),
      ),
    );
    assert.deepEqual([loads, fds.size], [1, 1]);
    for (const fd of fds) assert.throws(() => fstatSync(fd), { code: 'EBADF' });
  });

  it('stays loaded within the limit, the most recently used longest', async () => {
    const memories = new SnapshotMemories(25);
    loads = 0;
    const use = (id: string) => memories.use(id, load(10), async () => {});
    for (const id of ['a', 'b', 'a', 'c']) await use(id);
    assert.equal(loads, 3);
    await use('a');
    assert.equal(loads, 3, 'b had to go');
    await use('b');
    assert.equal(loads, 4);
    memories.close();
  });

  it('is not closed while it is being loaded, even if its users give up', async () => {
    const memories = new SnapshotMemories(0);
    let loaded = (_: number) => {};
    const ready = new Promise<number>((resolve) => {
      loaded = resolve;
    });
    const fd = openSync('/dev/null', 'r');
    await memories.use(
      'a',
      () => ({ fd, ready }),
      async () => {},
    );
    memories.drop('a');
    assert.ok(fstatSync(fd));
    loaded(1);
    await ready;
    await new Promise((resolve) => setImmediate(resolve));
    assert.throws(() => fstatSync(fd), { code: 'EBADF' });
  });

  it('a dropped memory is closed by its last user, and loaded again for the next', async () => {
    const memories = new SnapshotMemories(100);
    loads = 0;
    let fd = -1;
    await memories.use('a', load(10), async (memory) => {
      fd = memory.fd;
      memories.drop('a');
      assert.ok(fstatSync(fd));
    });
    assert.throws(() => fstatSync(fd), { code: 'EBADF' });
    await memories.use('a', load(10), async () => {});
    assert.equal(loads, 2);
    memories.close();
  });

  it('a failed load is reported to all waiting users, and retried by the next', async () => {
    const memories = new SnapshotMemories(100);
    let fd = -1;
    const fail = () => {
      fd = openSync('/dev/null', 'r');
      const ready = Promise.reject<number>(new Error('cannot be read'));
      ready.catch(() => {});
      return { fd, ready };
    };
    const wait = ({ ready }: { ready: Promise<number> }) => ready;
    await Promise.all([1, 2].map(() => assert.rejects(memories.use('a', fail, wait), /cannot be read/)));
    assert.throws(() => fstatSync(fd), { code: 'EBADF' });
    await memories.use('a', load(1), async () => {});
    memories.close();
  });
});
