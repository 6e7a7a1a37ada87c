// Tests the disk reserve on a small file system: what is refused and when, that the allocated ballast file stops fast
// guests, and that the service can use the reserve to its last byte. Needs root, because it mounts a tmpfs.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { DiskReserve } from '../src/storage/disk-reserve.ts';
import { until } from './support/fake-host.ts';

const MIB = 1024 ** 2;
const SIZE_MIB = 128;
const RESERVE_MIB = 32;
const full = { code: 'fleet_capacity', retryAfterSec: 60 };

describe('the reserve of the disk', { skip: process.getuid?.() !== 0 }, () => {
  let dir: string;
  let reserve: DiskReserve;
  const log = { warn() {}, info() {} };
  const ballastPath = () => join(dir, 'ballast');
  const begin = (reserveBytes: number | undefined = RESERVE_MIB * MIB) => {
    reserve = new DiskReserve({ dir, reserveBytes, ballastPath: ballastPath(), log });
    reserve.watch();
  };
  const ballastMib = () => (existsSync(ballastPath()) ? (statSync(ballastPath()).blocks * 512) / MIB : 0);
  const free = () => reserve.facts().freeBytes / MIB;
  /** Writes a file as a guest does. Throws ENOSPC when all space outside the ballast is used, as QEMU would get it. */
  const write = (name: string, mib: number) => writeFileSync(join(dir, name), Buffer.alloc(mib * MIB, 1));
  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sandbar-reserve-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${SIZE_MIB}m`, 'tmpfs', dir]);
    begin();
    await until('the ballast is there', () => ballastMib() === 24);
  });
  afterEach(async () => {
    await reserve.close();
    execFileSync('umount', [dir]);
    rmdirSync(dir);
  });

  it('the ballast counts as free space, so nothing changes for those who ask how much there is (RES-1)', () => {
    assert.equal(Math.round(free()), SIZE_MIB);
    assert.equal(reserve.facts().reserveBytes, RESERVE_MIB * MIB);
    reserve.refuseWhenShort();
  });

  it('what does not fit before the reserve is refused with a time to retry, and the rest is not (RES-1)', () => {
    reserve.refuseWhenShort(90 * MIB);
    assert.throws(() => reserve.refuseWhenShort(100 * MIB), full);
    assert.equal(reserve.isShort, false);
  });

  it('at the reserve the disk is short, and it is so until clearly more is free (RES-1)', async () => {
    const changes: boolean[] = [];
    reserve.events.on('change', () => changes.push(reserve.isShort));
    write('guest', 97);
    await until('short', () => reserve.isShort);
    assert.throws(() => reserve.refuseWhenShort(), full);
    let isRoom = false;
    const waiting = reserve.whenThereIsRoom().then(() => {
      isRoom = true;
    });
    truncateSync(join(dir, 'guest'), 94 * MIB);
    assert.throws(() => reserve.refuseWhenShort(), full);
    assert.equal(isRoom, false);
    truncateSync(join(dir, 'guest'), 90 * MIB);
    await waiting;
    assert.deepEqual(changes, [true, false]);
    reserve.refuseWhenShort();
  });

  it('a guest that is faster than the measurements meets the wall, and the service can still fill the reserve (RES-1)', async () => {
    assert.throws(() => write('guest', SIZE_MIB), { code: 'ENOSPC' });
    await until('short', () => reserve.isShort);
    // From here on the guests are paused. The database writes on until the reserve is used up. For each write it waits
    // until the ballast has shrunk.
    for (let written = 0; written < 22; written++) {
      await until('there is room to write', () => free() - ballastMib() >= 1);
      write(`database-${written}`, 1);
    }
    assert.ok(ballastMib() < 4, `${ballastMib()} MiB of ballast are left`);
    rmSync(join(dir, 'guest'));
    await until('the ballast is back', () => ballastMib() === 24);
    assert.equal(reserve.isShort, false);
  });

  it('the next agent takes over the ballast, and a smaller reserve makes it smaller (RES-1)', async () => {
    await reserve.close();
    assert.equal(ballastMib(), 24);
    begin(16 * MIB);
    await until('smaller', () => ballastMib() === 12);
    assert.equal(reserve.facts().reserveBytes, 16 * MIB);
    await reserve.close();
    begin(0);
    await until('none', () => ballastMib() === 0);
    write('guest', SIZE_MIB - 1);
    reserve.refuseWhenShort();
  });

  it('by default the reserve is a twentieth, and at least 2 GiB (RES-1)', async () => {
    await reserve.close();
    const of = (path: string) =>
      new DiskReserve({ dir: path, reserveBytes: undefined, ballastPath: ballastPath(), log }).facts();
    assert.equal(of(dir).reserveBytes, 2048 * MIB);
    const root = of('/');
    assert.equal(root.reserveBytes, Math.max(2048 * MIB, Math.floor(root.totalBytes / 20)));
  });
});
