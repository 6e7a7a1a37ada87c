// Tests disk snapshots of real machines: a snapshot contains all data that the guest wrote with fsync, and machines can
// be made from it. The agent runs as a separate process. Needs root and the base image.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostSnapshot, MachineReport } from '@sandbar/contract/host-api.ts';
import { AgentProcess } from './support/agent-process.ts';

const idOf = (number: number) => `019a0000-0000-7000-8000-0000000000${number.toString(16).padStart(2, '0')}`;
const snapshotId = (number: number) => `019a0000-0000-7000-8000-0000000001${number.toString(16).padStart(2, '0')}`;
const volumeId = (number: number) => `019a0000-0000-7000-8000-0000000002${number.toString(16).padStart(2, '0')}`;
const [FIRST, SECOND, THIRD, FOURTH] = [1, 2, 3, 4].map(idOf) as [string, string, string, string];

describe('disk snapshots of real machines', { skip: process.getuid?.() !== 0 }, () => {
  const agent = new AgentProcess();
  let generation = 1000;
  before(() => agent.start());
  after(async () => {
    for (const id of [FIRST, SECOND, THIRD, FOURTH]) await destroy(id);
    await agent.close();
  });

  type Wish = {
    desired?: 'running' | 'stopped';
    gb?: number;
    snapshot_id?: string;
    root_volume_id?: string;
    restore?: string;
  };
  /** Brings a machine to the wanted state, whether it is new or exists already. */
  const ensure = async (id: string, { desired = 'running', gb = 2, restore, ...from }: Wish = {}) => {
    const subnet = /"subnet":"(\d+\.\d+)\./.exec(readFileSync(agent.paths.hostState, 'utf8'))?.[1];
    const private_ip = `${subnet}.0.${10 + Number.parseInt(id.slice(-2), 16)}`;
    const size = { vcpus: 1, memory_mb: 256, rootfs_size_gb: gb };
    const spec = { ...size, stack: 'base', private_ip, hostname: 'machine', ...from };
    const more = restore === undefined ? {} : { restore_snapshot_id: restore };
    return agent.call<MachineReport>('PUT', `/v1/machines/${id}`, { generation: ++generation, desired, spec, ...more });
  };
  const run = async (id: string, wish: Wish = {}) => {
    const { body } = await ensure(id, wish);
    assert.equal(body.status, wish.desired ?? 'running', `${JSON.stringify(body)}\n${agent.log()}`);
  };
  const snapshot = (id: string, number: number) =>
    agent.done<HostSnapshot>('PUT', `/v1/machines/${id}/snapshots/${snapshotId(number)}`, {
      generation,
      memory: false,
    });
  const destroy = (id: string, keep = '') =>
    agent.done('DELETE', `/v1/machines/${id}?generation=${++generation}${keep && `&keep_volume_id=${keep}`}`);
  const forget = (number: number) => agent.done('DELETE', `/v1/snapshots/${snapshotId(number)}`);
  const listed = async () =>
    (await agent.done<{ snapshots: HostSnapshot[] }>('GET', '/v1/snapshots')).snapshots
      .map((one) => one.snapshot_id)
      .sort();
  const recordOf = (id: string) => JSON.parse(readFileSync(join(agent.paths.machines, id, 'machine.json'), 'utf8'));
  const layers = () => readdirSync(agent.paths.layers).length;
  const until = async (what: string, isTrue: () => boolean | Promise<boolean>) => {
    for (const deadline = Date.now() + 60_000; !(await isTrue()); await delay(20))
      assert.ok(Date.now() < deadline, `${what}\n${agent.log()}`);
  };

  /** Writes the disk of a record as one raw file. */
  const flatten = (record: { image: { rootfsPath: string }; layers: string[] }, to: string): void => {
    const node = (file: string, driver: string, below?: object): object => ({
      driver,
      file: { driver: 'file', filename: file },
      ...(driver === 'qcow2' ? { backing: below } : {}),
    });
    let chain = node(record.image.rootfsPath, 'raw');
    for (const id of record.layers) chain = node(join(agent.paths.layers, `${id}.qcow2`), 'qcow2', chain);
    execFileSync('qemu-img', ['convert', '-O', 'raw', `json:${JSON.stringify(chain)}`, to], { stdio: 'pipe' });
  };
  const snapshotRecord = (number: number) =>
    JSON.parse(readFileSync(join(agent.paths.snapshots, snapshotId(number), 'snapshot.json'), 'utf8'));

  it('a machine that writes all the time: each snapshot has a clean file system and all that was acknowledged (CLN-4)', async () => {
    await run(FIRST);
    // The script writes files with their own checksum in the name, and prints a file's number only after fsync.
    await agent.exec(
      FIRST,
      `mkdir /root/w; cat > /root/writer.sh <<'END'
n=0; while :; do n=$((n+1)); head -c 20000 /dev/urandom > /root/w/t; s=$(sha256sum < /root/w/t | cut -c1-64)
mv /root/w/t /root/w/$n.$s; sync -f /root/w; echo $n > /dev/shm/done; done
END
(sh /root/writer.sh > /dev/null 2>&1 &)`,
    );
    const told = async () => Number(await agent.exec(FIRST, 'cat /dev/shm/done 2>/dev/null || echo 0'));
    const folder = mkdtempSync(join(tmpdir(), 'sandbar-snapshot-'));
    try {
      for (const number of [1, 2, 3]) {
        const before = await told();
        await until('it writes on', async () => (await told()) > before + 2);
        const least = await told();
        const report = await snapshot(FIRST, number);
        assert.deepEqual(
          [report.snapshot_id, report.machine_id, report.kind, report.size_gb],
          [snapshotId(number), FIRST, 'disk', 2],
        );
        assert.ok(report.stored_bytes > 0);
        const raw = join(folder, 'disk.raw');
        flatten(snapshotRecord(number), raw);
        const superblock = execFileSync('dumpe2fs', ['-h', raw], { encoding: 'utf8', stdio: 'pipe' });
        assert.doesNotMatch(superblock, /needs_recovery/, 'a frozen file system has nothing to recover');
        execFileSync('e2fsck', ['-fn', raw], { stdio: 'pipe' });
        const names = execFileSync('debugfs', ['-R', 'ls -p /root/w', raw], { encoding: 'utf8', stdio: 'pipe' });
        const found = [...names.matchAll(/\/(\d+)\.([0-9a-f]{64})\//g)].map(([, n, sum]) => [Number(n), sum] as const);
        assert.ok(Math.max(...found.map(([n]) => n)) >= least, `${least} was acknowledged`);
        for (const [n, sum] of found.slice(-5)) {
          const path = join(folder, 'block');
          execFileSync('debugfs', ['-R', `dump /root/w/${n}.${sum} ${path}`, raw], { stdio: 'pipe' });
          assert.equal(execFileSync('sha256sum', [path], { encoding: 'utf8' }).slice(0, 64), sum);
        }
        rmSync(raw);
      }
      const before = await told();
      await until('it writes on', async () => (await told()) > before + 2);
    } finally {
      rmSync(folder, { recursive: true });
    }
    assert.deepEqual(await listed(), [1, 2, 3].map(snapshotId));
    assert.equal(recordOf(FIRST).layers.length, 3);
  });

  it('a repeated snapshot call changes nothing, and another machine cannot use the id', async () => {
    const before = snapshotRecord(1);
    await snapshot(FIRST, 1);
    assert.deepEqual(snapshotRecord(1), before);
    assert.equal(recordOf(FIRST).layers.length, 3);
  });

  it('machines made from a snapshot, also larger ones, see its files and write only to their own disks', async () => {
    await agent.exec(FIRST, 'pkill -f /root/writer.s[h]; rm -rf /root/w; echo one > /root/file; sync');
    await snapshot(FIRST, 4);
    await agent.exec(FIRST, 'echo changed > /root/file');
    await run(SECOND, { snapshot_id: snapshotId(4) });
    await run(THIRD, { snapshot_id: snapshotId(4), gb: 4 });
    assert.equal(await agent.exec(SECOND, 'cat /root/file'), 'one\n');
    assert.equal(await agent.exec(THIRD, 'cat /root/file'), 'one\n');
    assert.ok(Number(await agent.exec(THIRD, "df -BM / | awk 'NR==2 {print $2+0}'")) > 3500);
    await agent.exec(SECOND, 'echo two > /root/file; sync');
    assert.equal(await agent.exec(FIRST, 'cat /root/file'), 'changed\n');
    assert.equal(await agent.exec(THIRD, 'cat /root/file'), 'one\n');
    const { body, status } = await ensure(FOURTH, { snapshot_id: snapshotId(99) });
    assert.deepEqual([status, body.code], [409, 'conflict']);
    assert.ok(!existsSync(join(agent.paths.machines, FOURTH)));
    const small = await ensure(FOURTH, { snapshot_id: snapshotId(4), gb: 1 });
    assert.deepEqual([small.status, small.body.code], [409, 'conflict']);
  });

  it('deleting snapshots frees unused layers, and the others keep working', async () => {
    for (const number of [1, 2, 3]) await forget(number);
    await destroy(THIRD);
    assert.deepEqual(await listed(), [snapshotId(4)]);
    assert.equal(layers(), 4, 'the first machine and the fourth snapshot stand on all of them');
    await forget(4);
    await run(SECOND, { snapshot_id: snapshotId(4), desired: 'stopped' });
    await run(SECOND, { snapshot_id: snapshotId(4) });
    assert.equal(await agent.exec(SECOND, 'cat /root/file'), 'two\n');
    await destroy(FIRST);
    assert.equal(layers(), 4);
    await destroy(SECOND);
    await until('all layers are gone', () => layers() === 0);
    assert.deepEqual(await agent.findings(), []);
  });

  it('a stopped machine can be snapshotted; a restore happens once per generation, for a running or stopped machine', async () => {
    await run(FIRST);
    await agent.exec(FIRST, 'echo then > /root/file');
    await run(FIRST, { desired: 'stopped' });
    await snapshot(FIRST, 10);
    await run(FIRST);
    await agent.exec(FIRST, 'echo later > /root/file; sync');
    await run(FIRST, { restore: snapshotId(10) });
    assert.equal(await agent.exec(FIRST, 'cat /root/file'), 'then\n');
    await agent.exec(FIRST, 'echo again > /root/file; sync');
    generation--;
    await run(FIRST, { restore: snapshotId(10) });
    assert.equal(await agent.exec(FIRST, 'cat /root/file'), 'again\n', 'the same generation does not restore twice');
    await run(FIRST, { restore: snapshotId(10), desired: 'stopped' });
    await run(FIRST);
    assert.equal(await agent.exec(FIRST, 'cat /root/file'), 'then\n');
  });

  it('a kept root disk keeps its layers, and a larger machine made from it claims the disk', async () => {
    await agent.exec(FIRST, 'echo kept > /root/file');
    await destroy(FIRST, volumeId(1));
    await forget(10);
    assert.equal(layers(), 1);
    await run(SECOND, { root_volume_id: volumeId(1), gb: 4 });
    assert.equal(await agent.exec(SECOND, 'cat /root/file'), 'kept\n');
    assert.ok(Number(await agent.exec(SECOND, "df -BM / | awk 'NR==2 {print $2+0}'")) > 3500);
    assert.ok(!existsSync(join(agent.paths.volumes, volumeId(1))));
    await destroy(SECOND, volumeId(2));
    assert.deepEqual(readdirSync(agent.paths.volumes), [volumeId(2)]);
    await agent.done('DELETE', `/v1/volumes/${volumeId(2)}`);
    await until('its layer is gone', () => layers() === 0);
  });

  it('a long chain is flattened under the running machine with its content unchanged, and its snapshots stay', async () => {
    await run(FIRST);
    for (let number = 20; number < 29; number++) {
      await agent.exec(
        FIRST,
        `echo ${number} > /root/${number}; dd if=/dev/urandom of=/root/big${number} bs=1M count=2 2>&1; sync`,
      );
      await snapshot(FIRST, number);
    }
    const sums = await agent.exec(FIRST, 'cd /root; sha256sum big* 2[0-9]');
    await until('it is flat', () => recordOf(FIRST).layers.length === 0);
    const disks = () => {
      const fds = readdirSync(`/proc/${agent.pidOf(FIRST)}/fd`).map((fd) => `/proc/${agent.pidOf(FIRST)}/fd/${fd}`);
      return fds.map((fd) => readlinkSync(fd)).filter((target) => /\.qcow2|\/open-/.test(target));
    };
    await until('QEMU has closed what it does not need', () => new Set(disks()).size === 1);
    await agent.exec(FIRST, 'echo 3 > /proc/sys/vm/drop_caches');
    assert.equal(await agent.exec(FIRST, 'cd /root; sha256sum big* 2[0-9]'), sums);
    for (let number = 20; number < 29; number++) await forget(number);
    await until('all layers are gone', () => layers() === 0);
    process.kill(agent.pidOf(FIRST), 'SIGKILL');
    await until('its end is known', () => recordOf(FIRST).status === 'failed');
    await run(FIRST);
    assert.equal(await agent.exec(FIRST, 'cd /root; sha256sum big* 2[0-9]'), sums);
    await run(FIRST, { desired: 'stopped' });
    await run(FIRST);
    assert.equal(await agent.exec(FIRST, 'cd /root; sha256sum big* 2[0-9]'), sums);
    await snapshot(FIRST, 30);
    await run(SECOND, { snapshot_id: snapshotId(30) });
    assert.equal(await agent.exec(SECOND, 'cd /root; sha256sum big* 2[0-9]'), sums);
    assert.deepEqual(await agent.findings(), []);
    for (const id of [FIRST, SECOND]) await destroy(id);
    await forget(30);
    assert.ok(statSync(agent.paths.layers).isDirectory());
  });
});
