// Tests the uids of VMs: their range, and that no two VMs have the same uid.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
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

  it('a VM keeps its uid, no two have the same, and the one that was free longest is taken first (ISO-2)', () => {
    const pool = new UidPool({ first: 100, last: 103 });
    assert.deepEqual(
      ['a', 'b', 'a', 'c'].map((vmId) => pool.take(vmId)),
      [100, 101, 100, 102],
    );
    pool.giveBack('b');
    pool.giveBack('a');
    pool.giveBack('a');
    assert.deepEqual(
      ['d', 'e', 'f'].map((vmId) => pool.take(vmId)),
      [103, 101, 100],
    );
    assert.throws(() => pool.take('g'), /all 4 uids for VMs are taken/);
  });

  it('what an earlier agent gave is taken again, and never given to another (ISO-2)', () => {
    const pool = new UidPool({ first: 100, last: 101 });
    pool.takeAgain('old', 100);
    pool.takeAgain('old', 100);
    assert.equal(pool.take('new'), 101);
    assert.throws(() => pool.takeAgain('other', 100), /belongs to another VM/);
    for (const foreign of [0, 99, 102]) assert.throws(() => pool.takeAgain('other', foreign), /not one for VMs/);
    pool.giveBack('old');
    assert.equal(pool.take('next'), 100);
  });
});
