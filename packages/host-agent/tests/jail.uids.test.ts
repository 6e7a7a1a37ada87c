// Tests the uids of VMs: their range, and that no two VMs have the same uid.
import assert from 'node:assert/strict';
import { chownSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { ownersOfFiles } from '../src/jail/file-owners.ts';
import { UIDS_PER_HOME, UidPool, uidRange } from '../src/jail/uid-pool.ts';

describe('uid pool', () => {
  it('a data directory has a range of its own, beside accounts, containers and what systemd reserves (ISO-2)', () => {
    const homes = Array.from({ length: 500 }, (_, at) => `/home/${at}/sandbar`);
    for (const { first, last } of homes.map(uidRange)) {
      assert.ok(first > 0x6fff_ffff && last < 0x7ffe_0000, `${first} to ${last}`);
      assert.equal(last - first + 1, UIDS_PER_HOME);
      assert.equal(first % UIDS_PER_HOME, 0);
    }
    assert.deepEqual(uidRange('/var/lib/sandbar'), uidRange('/var/lib/sandbar'));
    assert.notDeepEqual(uidRange('/var/lib/sandbar'), uidRange('/srv/sandbar'));
  });

  it('a VM keeps its uid, no two have the same, and one that was used comes after all others (ISO-2)', () => {
    const pool = new UidPool({ first: 100, last: 103 }, () => new Set());
    assert.deepEqual(
      ['a', 'b', 'a', 'c'].map((vmId) => pool.take(vmId)),
      [100, 101, 100, 102],
    );
    pool.giveBack('b');
    pool.giveBack('a');
    pool.giveBack('a');
    assert.deepEqual(
      ['d', 'e', 'f'].map((vmId) => pool.take(vmId)),
      [103, 100, 101],
    );
    assert.throws(() => pool.take('g'), /all uids for VMs are taken/);
  });

  it('what an earlier agent gave is taken again, and never given to another (ISO-2)', () => {
    const pool = new UidPool({ first: 100, last: 101 }, () => new Set([100]));
    pool.takeAgain('old', 100);
    pool.takeAgain('old', 100);
    assert.equal(pool.take('new'), 101);
    assert.throws(() => pool.takeAgain('other', 100), /belongs to another VM/);
    for (const foreign of [0, 99, 102]) assert.throws(() => pool.takeAgain('other', foreign), /not one for VMs/);
  });

  it('a uid that owns a file is not given to a VM, neither after a restart nor when all others were used (ISO-2)', () => {
    const owners = new Set([100]);
    const pool = new UidPool({ first: 100, last: 102 }, () => owners);
    assert.equal(pool.take('a'), 101);
    owners.add(101);
    pool.giveBack('a');
    assert.equal(pool.take('b'), 102);
    pool.giveBack('b');
    assert.equal(pool.take('c'), 102);
    assert.throws(() => pool.take('d'), /all uids for VMs are taken/);
    owners.delete(100);
    assert.equal(pool.take('d'), 100);
  });

  it('disks of stopped machines, layers and run directories count as files of a uid (ISO-2)', {
    skip: process.getuid?.() !== 0,
  }, () => {
    const home = mkdtempSync(join(tmpdir(), 'sandbar-uids-'));
    try {
      const own = (path: string, uid: number) => {
        mkdirSync(join(home, dirname(path)), { recursive: true });
        writeFileSync(join(home, path), '');
        chownSync(join(home, path), uid, uid);
      };
      own('machines/m/disk.qcow2', 70_001);
      own('layers/l.qcow2', 70_002);
      own('pool/p.qcow2', 70_003);
      own('postgres/base/1', 70_004);
      chownSync(join(home, 'postgres'), 60_000, 60_000);
      own('run/machines/m/file', 70_006);
      chownSync(join(home, 'run/machines/m'), 70_005, 70_005);
      symlinkSync(join(home, 'postgres/base'), join(home, 'link'));
      own('machines/m/other', 80_001);
      assert.deepEqual(ownersOfFiles(home, { first: 70_000, last: 70_999 }), new Set([70_002, 70_001, 70_003, 70_005]));
    } finally {
      rmSync(home, { recursive: true });
    }
  });
});
