// Tests that sealed memory cannot be written: through its descriptor, through /proc, and by another account.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import { describe, it } from 'node:test';
import koffi from 'koffi';
import { beginSealedMemory, makeSealedMemory } from '../src/hypervisor/sealed-memory.ts';

const BYTES = 64 * 1024;
const TEXT = Buffer.from('what every clone starts from');
const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;
const MAP_PRIVATE = 2;

const libc = koffi.load('libc.so.6');
const mmap = libc.func('intptr_t mmap(intptr_t, size_t, int, int, int, intptr_t)');
const munmap = libc.func('int munmap(intptr_t, size_t)');

const fill = async (fd: number) => void writeSync(fd, TEXT, 0, TEXT.length, 4096);
const contentOf = (fd: number) => {
  const content = Buffer.alloc(TEXT.length);
  readSync(fd, content, 0, content.length, 4096);
  return content;
};
/** Whether the kernel allows this mapping. */
const canMap = (fd: number, protection: number, flags: number) => {
  const address = Number(mmap(0, BYTES, protection, flags, fd, 0));
  if (address !== -1) munmap(address, BYTES);
  return address !== -1;
};

function refuseChanges(fd: number): void {
  assert.throws(() => writeSync(fd, 'x', 4096), { code: 'EPERM' });
  for (const bytes of [0, BYTES - 4096, BYTES + 4096]) assert.throws(() => ftruncateSync(fd, bytes), { code: 'EPERM' });
  assert.equal(canMap(fd, PROT_READ | PROT_WRITE, MAP_SHARED), false);
  assert.equal(canMap(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE), true, 'a copy of its own is what a clone gets');
  assert.deepEqual(contentOf(fd), TEXT);
}

describe('sealed memory', () => {
  it('a write, a truncation and a shared writable mapping fail (ISO-4)', async () => {
    const fd = await makeSealedMemory('test', BYTES, fill);
    refuseChanges(fd);
    closeSync(fd);
  });

  it('they fail, too, when it is opened again through /proc, as QEMU does (ISO-4)', async () => {
    const fd = await makeSealedMemory('test', BYTES, fill);
    const again = openSync(`/proc/self/fd/${fd}`, constants.O_RDWR);
    refuseChanges(again);
    assert.throws(() => openSync(`/proc/self/fd/${fd}`, constants.O_RDWR | constants.O_TRUNC), { code: 'EPERM' });
    for (const one of [again, fd]) closeSync(one);
  });

  it('who opened and mapped it before it was sealed cannot change it afterwards (ISO-4)', async () => {
    const { fd, sealed } = beginSealedMemory('test', BYTES, async (target) => {
      await new Promise((resolve) => setImmediate(resolve));
      await fill(target);
    });
    const early = openSync(`/proc/self/fd/${fd}`, constants.O_RDWR);
    const address = Number(mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, early, 0));
    assert.notEqual(address, -1);
    await sealed;
    refuseChanges(early);
    munmap(address, BYTES);
    for (const one of [early, fd]) closeSync(one);
  });

  it('memory that somebody can still write through a shared mapping is never said to be sealed (ISO-4)', async () => {
    const { fd, sealed } = beginSealedMemory('test', BYTES, async (target) => {
      await new Promise((resolve) => setImmediate(resolve));
      await fill(target);
    });
    const address = Number(mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    assert.notEqual(address, -1);
    await assert.rejects(sealed, /cannot be sealed/);
    munmap(address, BYTES);
    closeSync(fd);
  });

  it('another account can open it for reading and writing, and changes nothing either (ISO-4)', {
    skip: process.getuid?.() !== 0,
  }, async () => {
    const fd = await makeSealedMemory('test', BYTES, fill);
    const script = `
      open(my $memory, '+<', '/proc/self/fd/3') or die "cannot be opened: $!";
      sysseek($memory, 4096, 0); print syswrite($memory, 'x') ? "written\\n" : "$!\\n";
      print truncate($memory, 0) ? "truncated\\n" : "$!\\n";
      open(my $again, '+>', '/proc/self/fd/3') and print "emptied\\n";
      print "as $<\\n";`;
    const { stdout, stderr } = spawnSync('perl', ['-e', script], {
      uid: 65_534,
      gid: 65_534,
      stdio: ['ignore', 'pipe', 'pipe', fd],
      encoding: 'utf8',
    });
    assert.equal(stderr, '');
    assert.equal(stdout, 'Operation not permitted\nOperation not permitted\nas 65534\n');
    assert.deepEqual(contentOf(fd), TEXT);
    closeSync(fd);
  });

  it('unwritten parts take no memory', async () => {
    const fd = await makeSealedMemory('test', 1024 ** 3, fill);
    const { size, blocks } = fstatSync(fd);
    assert.deepEqual([size, blocks * 512], [1024 ** 3, 4096]);
    closeSync(fd);
  });

  it('a failure while filling it leaves no descriptor', async () => {
    let given = -1;
    const failing = makeSealedMemory('test', BYTES, async (fd) => {
      given = fd;
      throw new Error('the disk cannot be read');
    });
    await assert.rejects(failing, /cannot be read/);
    assert.throws(() => fstatSync(given), { code: 'EBADF' });
  });
});
