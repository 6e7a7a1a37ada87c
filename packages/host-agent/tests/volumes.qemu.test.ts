// Tests data volumes in real machines: synced data is kept, whichever machine uses the volume next and whatever was
// killed. Needs root and the base image.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostVolume, MachineVolume } from '@sandbar/contract/host-api.ts';
import { AgentProcess } from './support/agent-process.ts';

const A = '019a0000-0000-7000-8000-00000000000a';
const B = '019a0000-0000-7000-8000-00000000000b';
const C = '019a0000-0000-7000-8000-00000000000c';

describe('volumes in real machines', { skip: process.getuid?.() !== 0, timeout: 300_000 }, () => {
  const agent = new AgentProcess();
  before(async () => {
    await agent.start();
    await agent.run(A);
    await agent.run(B);
  });
  after(() => agent.close());

  const at = (volume_id: string, mount_path = '/data'): MachineVolume => ({ volume_id, mount_path });
  /** The id of a volume is never used again, as in the control plane. */
  const newVolume = async () => {
    const id = randomUUID();
    await agent.done<HostVolume>('PUT', `/v1/volumes/${id}`, { size_gb: 5 });
    return id;
  };
  const diskOf = (id: string) => join(agent.paths.volumes, id, 'data.raw');
  /** Whether a process has the file open. */
  const hasOpen = (pid: number, path: string) =>
    readdirSync(`/proc/${pid}/fd`).some((fd) => {
      const facts = statSync(`/proc/${pid}/fd/${fd}`, { throwIfNoEntry: false });
      return facts?.ino === statSync(path).ino && facts.dev === statSync(path).dev;
    });
  const links = (id: string) => readdirSync(agent.runDirOf(id)).filter((name) => name.startsWith('open-'));
  /** Checks that the file system of an unused volume was unmounted cleanly and has no errors. */
  const checkClean = (id: string) => {
    const facts = execFileSync('dumpe2fs', ['-h', diskOf(id)], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    assert.match(facts, /Filesystem state: +clean\n/);
    assert.doesNotMatch(facts, /needs_recovery/);
    execFileSync('e2fsck', ['-fn', diskOf(id)], { stdio: 'pipe' });
  };
  /** Writes random bytes to a file, syncs it, and returns their hash. */
  const write = async (machine: string, path: string) => {
    const text = randomBytes(30_000).toString('base64');
    await agent.exec(machine, `echo ${text} > ${path} && sync ${path}`);
    return createHash('sha256').update(`${text}\n`).digest('hex');
  };
  const read = async (machine: string, path: string) =>
    (await agent.exec(machine, `sha256sum < ${path}`)).split(' ')[0];

  it('are mounted in a machine that runs, are its own alone, and are given back clean', async () => {
    const id = await newVolume();
    await agent.run(A, [at(id)]);
    const uid = statSync(`/proc/${agent.pidOf(A)}`).uid;
    assert.ok(uid > 0x7000_0000);
    assert.equal(statSync(diskOf(id)).uid, uid);
    assert.ok(hasOpen(agent.pidOf(A), diskOf(id)));
    assert.deepEqual(links(A), []);
    const another = () => execFileSync('qemu-io', ['-f', 'raw', '-c', 'read 0 512', diskOf(id)], { stdio: 'pipe' });
    assert.throws(another, /lock/, 'no second QEMU could open it');
    assert.equal((await agent.exec(A, 'cat /sys/block/sda/queue/write_cache')).trim(), 'write back');
    assert.match(await agent.exec(A, 'findmnt -no FSTYPE,TARGET /dev/sda'), /^ext4 +\/data\n/);
    const hash = await write(A, '/data/file');
    const refused = await agent.call<object>('DELETE', `/v1/volumes/${id}`);
    assert.deepEqual([refused.status, refused.body.code], [409, 'conflict']);
    const elsewhere = await agent.ensure(B, 'running', [at(id)]);
    assert.deepEqual([elsewhere.status, elsewhere.body.code], [409, 'conflict']);

    await agent.run(A);
    assert.equal(statSync(diskOf(id)).uid, 0);
    assert.ok(!hasOpen(agent.pidOf(A), diskOf(id)));
    assert.equal((await agent.exec(A, 'ls /sys/block | grep -c ^sd || true')).trim(), '0');
    checkClean(id);
    await agent.run(B, [at(id, '/srv/with spaces')]);
    assert.equal(await read(B, "'/srv/with spaces/file'"), hash);
    await agent.run(B);
    checkClean(id);
    await agent.done('DELETE', `/v1/volumes/${id}`);
    assert.deepEqual(await agent.findings(), []);
  });

  it('all eight, one inside another, are there again after a stop, a start and a reboot of the guest', async () => {
    const ids = await Promise.all(Array.from({ length: 8 }, newVolume));
    const nested = ids.map((id, index) => at(id, `/v${'/in'.repeat(index)}`)).reverse();
    await agent.run(A, nested);
    for (const [index] of ids.entries()) await agent.exec(A, `echo ${index} > /v${'/in'.repeat(index)}/who`);
    const ninth = await agent.ensure(A, 'running', [...nested, at(randomUUID(), '/ninth')]);
    assert.equal(ninth.status, 400);
    const check = async () => {
      const all = ids.map((_, index) => `/v${'/in'.repeat(index)}/who`).join(' ');
      assert.equal((await agent.exec(A, `cat ${all}`)).replaceAll('\n', ''), '01234567');
      assert.equal((await agent.exec(A, 'grep -c ^/dev/sd /proc/mounts')).trim(), '8');
    };
    await check();
    await agent.stop(A, nested);
    for (const id of ids) checkClean(id);
    await agent.run(A, nested);
    await check();
    const pid = agent.pidOf(A);
    await agent.begin(A, 'reboot -f || echo b > /proc/sysrq-trigger');
    const isBack = async () =>
      (await agent.statusOf(A)).status === 'running' && Number.isInteger(agent.pidOf(A)) && agent.pidOf(A) !== pid;
    while (!(await isBack())) await delay(50);
    await check();
    await agent.run(A);
    for (const id of ids) {
      checkClean(id);
      await agent.done('DELETE', `/v1/volumes/${id}`);
    }
  });

  it('that are busy stay, and the refusal names what holds them', async () => {
    const id = await newVolume();
    await agent.run(A, [at(id)]);
    await agent.begin(A, 'cd /data && exec sleep 600');
    while (!(await agent.exec(A, 'ls -l /proc/[0-9]*/cwd 2>/dev/null')).includes('-> /data\n')) await delay(20);
    const { status, body } = await agent.ensure(A, 'running', []);
    assert.equal(status, 409);
    assert.match(body.detail ?? '', /sleep/);
    await agent.exec(A, 'echo still there > /data/file');
    await agent.exec(A, 'pkill -x sleep');
    await agent.run(A);
    checkClean(id);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('whose place is taken by a file are refused while it runs, and fail a start that says so', async () => {
    const id = await newVolume();
    await agent.exec(A, 'echo a file > /place; sync');
    const hot = await agent.ensure(A, 'running', [at(id, '/place')]);
    assert.ok(hot.status === 400 || hot.status === 409, JSON.stringify(hot));
    assert.equal(statSync(diskOf(id)).uid, 0, 'it was taken out again');
    assert.equal((await agent.exec(A, 'ls /sys/block | grep -c ^sd || true')).trim(), '0');
    await agent.stop(A);
    const cold = await agent.ensure(A, 'running', [at(id, '/place')]);
    assert.deepEqual([cold.status, cold.body.code], [409, 'conflict']);
    assert.match(cold.body.detail ?? '', new RegExp(`volume ${id} cannot be mounted at /place: .`));
    assert.equal((await agent.statusOf(A)).status, 'stopped');
    assert.equal(statSync(diskOf(id)).uid, 0);
    await agent.run(A, [at(id, '/another')]);
    await agent.run(A);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('keep what was synced when QEMU is killed, for the next machine that has them', async () => {
    const id = await newVolume();
    await agent.run(A, [at(id)]);
    const hashes: (string | undefined)[] = [];
    for (let n = 0; n < 3; n++) hashes.push(await write(A, `/data/${n}`));
    process.kill(agent.pidOf(A), 'SIGKILL');
    while ((await agent.statusOf(A)).status !== 'failed') await delay(20);
    assert.equal(statSync(diskOf(id)).uid, 0);
    await agent.run(B, [at(id)]);
    for (let n = 0; n < 3; n++) assert.equal(await read(B, `/data/${n}`), hashes[n]);
    await agent.run(B);
    await agent.run(A, [at(id)]);
    for (let n = 0; n < 3; n++) assert.equal(await read(A, `/data/${n}`), hashes[n]);
    await agent.run(A);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('keep what a machine wrote and did not sync when the machine is destroyed', async () => {
    const id = await newVolume();
    await agent.run(C, [at(id)]);
    await agent.exec(C, 'seq 100000 > /data/file');
    await agent.destroy(C);
    checkClean(id);
    await agent.run(A, [at(id)]);
    assert.equal((await agent.exec(A, 'tail -1 /data/file')).trim(), '100000');
    await agent.run(A);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('an agent that is killed anywhere in an attach or a detach is followed by one that ends in what is wanted (CTL-2)', async () => {
    const id = await newVolume();
    await agent.run(A, [at(id)]);
    const hash = await write(A, '/data/file');
    let isAttached = true;
    for (let round = 0; round < 6; round++) {
      const wanted = isAttached ? [] : [at(id)];
      const call = agent.ensure(A, 'running', wanted).catch(() => undefined);
      await delay(round * 14);
      await agent.kill();
      await call;
      await agent.start();
      // In every second round the change is undone instead of completed.
      if (round % 2 === 0) isAttached = !isAttached;
      await agent.run(A, isAttached ? [at(id)] : []);
      assert.equal(hasOpen(agent.pidOf(A), diskOf(id)), isAttached);
      assert.equal(statSync(diskOf(id)).uid > 0, isAttached);
      assert.deepEqual(links(A), []);
      if (isAttached) assert.equal(await read(A, '/data/file'), hash);
      else checkClean(id);
    }
    await agent.run(A);
    assert.deepEqual(await agent.findings(), []);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('half a disk in QEMU, and a link that was left, are taken out by the next agent', async () => {
    const id = await newVolume();
    await agent.run(A, [at(id)]);
    await agent.exec(A, 'sync; umount /data');
    await agent.kill();
    await deviceDel(join(agent.runDirOf(A), 'qmp.sock'), 'volume0');
    execFileSync('ln', [diskOf(id), join(agent.runDirOf(A), 'open-left')]);
    assert.ok(hasOpen(agent.pidOf(A), diskOf(id)), 'its node is there');
    await agent.start();
    assert.ok(!hasOpen(agent.pidOf(A), diskOf(id)));
    assert.deepEqual(links(A), []);
    assert.equal(statSync(diskOf(id)).uid, 0);
    await agent.run(A, [at(id)]);
    await agent.exec(A, 'echo works > /data/file');
    await agent.run(A);
    checkClean(id);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('return to the host what the guest trims', async () => {
    const id = await newVolume();
    await agent.run(A, [at(id)]);
    await agent.exec(A, 'head -c 50M /dev/urandom > /data/big; sync');
    const blocks = () => statSync(diskOf(id)).blocks / 2048;
    assert.ok(blocks() > 50);
    await agent.exec(A, 'rm /data/big; sync; fstrim /data');
    assert.ok(blocks() < 20, `${blocks()} MiB`);
    await agent.run(A);
    await agent.done('DELETE', `/v1/volumes/${id}`);
  });

  it('leave nothing on the host', async () => {
    assert.deepEqual(readdirSync(agent.paths.volumes), []);
    assert.deepEqual(await agent.findings(), []);
  });
});

/** Sends a device_del to QEMU, as an agent does that dies right afterwards. */
async function deviceDel(path: string, id: string): Promise<void> {
  const socket = connect(path);
  await once(socket, 'connect');
  const lines = createInterface(socket);
  socket.write('{"execute":"qmp_capabilities"}\n');
  socket.write(`${JSON.stringify({ execute: 'device_del', arguments: { id } })}\n`);
  for await (const line of lines) if (line.includes('"DEVICE_DELETED"') && line.includes(`"${id}"`)) break;
  socket.destroy();
}
