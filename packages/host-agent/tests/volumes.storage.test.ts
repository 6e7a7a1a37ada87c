// Tests data volumes as files of the host: which files exist, what a crash leaves, and which machine uses which volume.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { chown, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { volumeFindings } from '../src/audit/volume-findings.ts';
import { linkIntoRunDirectory } from '../src/jail/run-links.ts';
import { DataVolumes } from '../src/storage/data-volumes.ts';
import { VolumeStore } from '../src/storage/volume-store.ts';

const ID = '019a0000-0000-7000-8000-0000000000d1';
const OTHER = '019a0000-0000-7000-8000-0000000000d2';
const MACHINE = '019a0000-0000-7000-8000-00000000000a';
const NEIGHBOUR = '019a0000-0000-7000-8000-00000000000b';
const GIB = 1024 ** 3;

describe('data volumes', () => {
  let dir: string;
  let volumes: DataVolumes;
  let roots: VolumeStore;
  const log = { error() {} };
  const disk = (id = ID) => join(dir, id, 'data.raw');
  const record = (id = ID) => JSON.parse(readFileSync(join(dir, id, 'volume.json'), 'utf8'));
  /** Opens the stores, as a new agent does at its start. */
  const start = () => {
    roots = new VolumeStore(dir, log);
    volumes = new DataVolumes(dir, log);
  };
  const listed = () => volumes.list().map(({ volume_id }) => volume_id);
  const conflict = (text: RegExp) => (error: { code?: string; message: string }) =>
    error.code === 'conflict' && text.test(error.message);
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'sandbar-volumes-'));
    start();
  });
  afterEach(() => rmSync(dir, { recursive: true, force: true }));

  it('are created complete and sparse, and only once for repeated calls', async () => {
    await Promise.all([volumes.ensure(ID, 5), volumes.ensure(ID, 5)]);
    const { ino } = statSync(disk());
    await volumes.ensure(ID, 5);
    assert.deepEqual(volumes.list(), [{ volume_id: ID, size_gb: 5, kind: 'data' }]);
    assert.equal(statSync(disk()).ino, ino);
    assert.equal(statSync(disk()).size, 5 * GIB);
    assert.ok(statSync(disk()).blocks < 100, 'what is never written takes no room');
    assert.equal(statSync(disk()).mode & 0o777, 0o600);
    assert.deepEqual(record(), { kind: 'data', size_gb: 5, formatted: false });
  });

  it('are refused with another size, and with the id of a kept root disk', async () => {
    await volumes.ensure(ID, 5);
    await assert.rejects(volumes.ensure(ID, 6), conflict(/has 5 GB, not 6/));
    const machineDisk = join(dir, '..', `${OTHER}.qcow2`);
    writeFileSync(machineDisk, 'root disk');
    await roots.keep(OTHER, machineDisk, {
      kind: 'root',
      size_gb: 5,
      machine_id: MACHINE,
      stack: null,
      image: null,
      layers: null,
    });
    await assert.rejects(volumes.ensure(OTHER, 5), conflict(/kept root disk/));
    assert.deepEqual(listed(), [ID]);
    assert.deepEqual(
      roots.list().map(({ volume_id }) => volume_id),
      [OTHER],
    );
    await volumes.remove(OTHER);
    assert.ok(roots.has(OTHER), 'a kept root disk is not a data volume to remove');
  });

  it('survive the agent, but half-made and half-removed volumes do not', async () => {
    await volumes.ensure(ID, 5);
    mkdirSync(join(dir, OTHER));
    writeFileSync(join(dir, OTHER, 'volume.json'), '{"kind":"data","size_gb":5,"formatted":true}');
    start();
    assert.deepEqual(readdirSync(dir), [ID]);
    assert.deepEqual(listed(), [ID]);
    await volumes.remove(ID);
    await volumes.remove(ID);
    assert.deepEqual(readdirSync(dir), []);
  });

  it('that were removed are not made again by a call that comes late', async () => {
    await volumes.ensure(ID, 5);
    await volumes.remove(ID);
    await assert.rejects(volumes.ensure(ID, 5), conflict(/was deleted/));
    await volumes.remove(OTHER);
    await assert.rejects(volumes.ensure(OTHER, 5), conflict(/was deleted/));
    assert.deepEqual(readdirSync(dir), []);
  });

  it('that could not be removed can still be asked for', async () => {
    await volumes.ensure(ID, 5);
    await volumes.take(ID, MACHINE);
    await assert.rejects(volumes.remove(ID), conflict(/is attached/));
    await volumes.ensure(ID, 5);
    assert.deepEqual(listed(), [ID]);
  });

  it('are formatted when a machine takes them for the first time, with nothing left to write for the guest', async () => {
    await volumes.ensure(ID, 5);
    assert.equal(await volumes.take(ID, MACHINE), disk());
    const facts = execFileSync('dumpe2fs', [disk()], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    assert.match(facts, new RegExp(`Filesystem UUID: +${ID}`));
    assert.match(facts, /Reserved block count: +0\n/);
    const groups = facts.match(/^Group \d+:.*$/gm) ?? [];
    assert.equal(groups.length, 40);
    assert.deepEqual(
      groups.filter((line) => !line.includes('ITABLE_ZEROED')),
      [],
      'the inode tables count as written: the kernel has nothing to do in the background',
    );
    assert.equal(execFileSync('e2fsck', ['-fn', disk()], { stdio: 'pipe' }).length > 0, true);
    assert.ok(statSync(disk()).blocks * 512 < 8 * 1024 * 1024);
    assert.equal(record().formatted, true);
  });

  it('are formatted also when PATH lacks the sbin folders, and a missing mkfs is reported', async () => {
    const { PATH } = process.env;
    await volumes.ensure(ID, 5);
    await volumes.ensure(OTHER, 5);
    try {
      process.env.PATH = '/nonexistent';
      await volumes.take(ID, MACHINE);
      process.env.PATH = join(dir, 'tools');
      mkdirSync(process.env.PATH);
      writeFileSync(join(process.env.PATH, 'mkfs.ext4'), '#!/bin/sh\necho a broken tool >&2; exit 1', { mode: 0o755 });
      await assert.rejects(volumes.take(OTHER, MACHINE), {
        code: 'host_unavailable',
        message: /made ready: .*a broken tool/,
      });
    } finally {
      process.env.PATH = PATH;
    }
    assert.equal(volumes.userOf(OTHER), undefined);
    assert.equal(record(OTHER).formatted, false);
  });

  it('are formatted once: a second machine finds the data of the first', async () => {
    await volumes.ensure(ID, 5);
    await volumes.take(ID, MACHINE);
    const file = await open(disk(), 'r+');
    await file.write('what the machine wrote', 3 * GIB);
    await file.close();
    volumes.giveBack(ID, MACHINE);
    await volumes.take(ID, NEIGHBOUR);
    const again = await open(disk());
    const { buffer } = await again.read(Buffer.alloc(22), 0, 22, 3 * GIB);
    await again.close();
    assert.equal(buffer.toString(), 'what the machine wrote');
  });

  it('are formatted again, without losing data, after a crash before that was recorded', async () => {
    await volumes.ensure(ID, 5);
    const file = await open(disk(), 'r+');
    await file.write(
      Buffer.alloc(1024 * 1024, 'left by a formatting that was cut short'),
      0,
      1024 * 1024,
      200 * 1024 * 1024,
    );
    await file.close();
    start();
    await volumes.take(ID, MACHINE);
    execFileSync('e2fsck', ['-fn', disk()], { stdio: 'pipe' });
    const again = await open(disk());
    const { buffer } = await again.read(Buffer.alloc(1024 * 1024), 0, 1024 * 1024, 200 * 1024 * 1024);
    await again.close();
    assert.ok(!buffer.includes('left by'), 'nothing of it shows through');
  });

  it('belong to one machine at a time and cannot be removed meanwhile', async () => {
    await volumes.ensure(ID, 5);
    await volumes.take(ID, MACHINE);
    await volumes.take(ID, MACHINE);
    await assert.rejects(volumes.take(ID, NEIGHBOUR), conflict(new RegExp(`in use by machine ${MACHINE}`)));
    await assert.rejects(volumes.remove(ID), conflict(new RegExp(`attached to machine ${MACHINE}`)));
    volumes.giveBack(ID, NEIGHBOUR);
    assert.equal(volumes.userOf(ID), MACHINE);
    volumes.giveBack(ID, MACHINE);
    await volumes.take(ID, NEIGHBOUR);
    volumes.giveBack(ID, NEIGHBOUR);
    await volumes.remove(ID);
    await assert.rejects(volumes.take(ID, MACHINE), conflict(/not on this host/));
    assert.equal(volumes.userOf(ID), undefined);
  });

  it('that are taken and removed in parallel end up in one of the two states', async () => {
    await volumes.ensure(ID, 5);
    const results = await Promise.allSettled([volumes.remove(ID), volumes.take(ID, MACHINE)]);
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
    assert.equal(volumes.userOf(ID) !== undefined, existsSync(disk()));
  });

  it('with an unreadable record cannot be used, and hide no others', async () => {
    await volumes.ensure(ID, 5);
    await volumes.ensure(OTHER, 5);
    writeFileSync(join(dir, ID, 'volume.json'), '');
    start();
    assert.deepEqual(listed(), [OTHER]);
    await assert.rejects(volumes.take(ID, MACHINE), conflict(/cannot be read/));
    assert.ok(existsSync(disk()), 'its data stays');
    assert.deepEqual(
      volumeFindings(volumes, [], Date.now()).map(({ subject, fixable }) => [subject, fixable]),
      [[join(dir, ID), false]],
    );
  });

  it('on a full disk: a failed create leaves nothing, and no volume is half formatted', {
    skip: process.getuid?.() !== 0,
  }, async () => {
    const full = (error: { code?: string }) => error.code === 'fleet_capacity';
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,nr_inodes=9', 'tmpfs', dir]);
    try {
      await volumes.ensure(ID, 5);
      await assert.rejects(volumes.take(ID, MACHINE), full);
      assert.equal(volumes.userOf(ID), undefined);
      assert.equal(record().formatted, false);
      for (let n = 0; n < 3; n++) writeFileSync(join(dir, `fills ${n}`), '');
      await assert.rejects(volumes.ensure(OTHER, 5), full);
      assert.ok(!existsSync(join(dir, OTHER)));
      execFileSync('mount', ['-o', 'remount,size=64m,nr_inodes=100', dir]);
      await volumes.take(ID, MACHINE);
      execFileSync('e2fsck', ['-fn', disk()], { stdio: 'pipe' });
    } finally {
      execFileSync('umount', [dir]);
    }
  });

  it('that were being opened when an agent died are found by their links, volumes being opened now are not', async () => {
    await volumes.ensure(ID, 5);
    const runDir = mkdtempSync(join(tmpdir(), 'sandbar-run-'));
    const { name } = linkIntoRunDirectory(runDir, disk(), undefined);
    const look = (later: number) => volumeFindings(volumes, [runDir], Date.now() + later);
    assert.deepEqual(look(0), []);
    const [left, ...others] = look(60_000);
    assert.deepEqual([left?.subject, left?.fixable, others], [join(runDir, name), true, []]);
    await left?.mend();
    assert.deepEqual(look(60_000), []);
    assert.ok(existsSync(disk()));
    rmSync(runDir, { recursive: true });
  });

  it('that a VM’s uid still owns are found and taken back', { skip: process.getuid?.() !== 0 }, async () => {
    await volumes.ensure(ID, 5);
    await volumes.ensure(OTHER, 5);
    await volumes.take(OTHER, MACHINE);
    for (const id of [ID, OTHER]) await chown(disk(id), 0x7000_0001, 0x7000_0001);
    const [stray, ...others] = volumeFindings(volumes, [], Date.now());
    assert.deepEqual([stray?.subject, stray?.fixable, others], [disk(), true, []]);
    await stray?.mend();
    assert.deepEqual(volumes.strays(), []);
    assert.equal(statSync(disk()).uid, 0);
    assert.equal(statSync(disk(OTHER)).uid, 0x7000_0001, 'a machine has that one');
    volumes.giveBack(OTHER, MACHINE);
    assert.equal(statSync(disk(OTHER)).uid, 0);
  });
});
