// Data volumes, and root disks that outlive their machine, in real machines and through the public API.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import { createClone } from '../support/clones.ts';
import {
  call,
  createMachine,
  destroyMachine,
  expectStatus,
  getMachine,
  sh,
  startExec,
  until,
} from '../support/service.ts';

describe('volumes', () => {
  const machines: Machine[] = [];
  const volumes: Volume[] = [];
  let machine: Machine;
  before(async () => {
    machine = await newMachine();
  });
  after(async () => {
    for (const { id } of machines) await call('DELETE', `/v1/machines/${id}`);
    for (const { id } of volumes) await call('DELETE', `/v1/volumes/${id}`);
  });

  async function newMachine(wanted = {}): Promise<Machine> {
    const made = await createMachine(wanted);
    machines.push(made);
    return made;
  }

  async function newVolume(): Promise<Volume> {
    const volume = await expectStatus<Volume>(201, 'POST', '/v1/volumes', { size_gb: 5, name: 'data' });
    volumes.push(volume);
    return volume;
  }

  const attach = (volume: Volume, to: Machine, mountPath?: string) =>
    expectStatus<Volume>(200, 'POST', `/v1/volumes/${volume.id}/attach`, {
      machine_id: to.id,
      ...(mountPath === undefined ? {} : { mount_path: mountPath }),
    });
  const detach = (volume: Volume) => expectStatus<Volume>(200, 'POST', `/v1/volumes/${volume.id}/detach`);

  it('a volume is mounted at its path with its size, and keeps its data over stop, start and a move to another machine', async () => {
    const volume = await newVolume();
    const attached = await attach(volume, machine);
    assert.deepEqual(
      [attached.state, attached.machine_id, attached.mount_path],
      ['attached', machine.id, `/mnt/${volume.id}`],
    );
    const path = `/mnt/${volume.id}`;
    const { stdout } = await sh(machine.id, `findmnt -no FSTYPE,SIZE -b ${path}; echo kept > ${path}/file`);
    const [type, bytes] = stdout.trim().split(/\s+/);
    assert.equal(type, 'ext4');
    assert.ok(Number(bytes) > 4.5 * 2 ** 30, `${bytes} bytes`);

    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/stop`);
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/start`);
    assert.equal((await sh(machine.id, `cat ${path}/file`)).stdout, 'kept\n');

    const freed = await detach(volume);
    assert.deepEqual([freed.state, freed.machine_id, freed.mount_path], ['available', null, null]);
    assert.notEqual((await sh(machine.id, `findmnt ${path}`)).code, 0);
    assert.equal((await sh(machine.id, 'ls /sys/bus/scsi/devices/*/block 2>/dev/null')).stdout, '');

    const other = await createClone({ memory_mb: 256 });
    machines.push(other);
    await attach(volume, other, '/srv/data');
    assert.equal((await sh(other.id, 'cat /srv/data/file')).stdout, 'kept\n');
  });

  it('a volume that is attached to a stopped machine is mounted at its next start', async () => {
    const volume = await newVolume();
    const stopped = await newMachine({ memory_mb: 256 });
    await expectStatus(200, 'POST', `/v1/machines/${stopped.id}/stop`);
    await attach(volume, stopped, '/data');
    await expectStatus(200, 'POST', `/v1/machines/${stopped.id}/start`);
    assert.equal((await sh(stopped.id, 'findmnt -no FSTYPE /data')).stdout, 'ext4\n');
    await expectStatus(200, 'POST', `/v1/machines/${stopped.id}/stop`);
    await detach(volume);
    await expectStatus(200, 'POST', `/v1/machines/${stopped.id}/start`);
    assert.notEqual((await sh(stopped.id, 'findmnt /data')).code, 0);
  });

  it('a machine that reboots itself has its volumes again', async () => {
    const volume = await newVolume();
    const rebooted = await newMachine({ memory_mb: 256 });
    await attach(volume, rebooted, '/data');
    await sh(rebooted.id, 'echo kept > /data/file; sync');
    const boot = (await sh(rebooted.id, 'cat /proc/sys/kernel/random/boot_id')).stdout;
    await startExec(rebooted.id, { command: 'echo b > /proc/sysrq-trigger' });
    await until('another boot', async () => {
      const { code, stdout } = await sh(rebooted.id, 'cat /proc/sys/kernel/random/boot_id');
      return code === 0 && stdout !== boot;
    });
    assert.equal((await sh(rebooted.id, 'cat /data/file')).stdout, 'kept\n');
  });

  it('a busy volume is not detached, and the error names the process that uses it', async () => {
    const volume = await newVolume();
    await attach(volume, machine, '/busy');
    const job = await startExec(machine.id, { argv: ['sleep', '1000'], cwd: '/busy' });
    const refused = await call('POST', `/v1/volumes/${volume.id}/detach`);
    assert.equal(refused.status, 409);
    assert.match(String(refused.body.detail), /sleep/);
    assert.equal((await expectStatus<Volume>(200, 'GET', `/v1/volumes/${volume.id}`)).state, 'attached');
    assert.equal((await sh(machine.id, 'echo still > /busy/x && cat /busy/x')).stdout, 'still\n');
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/execs/${job.id}/cancel`);
    await until('free', async () => (await call('POST', `/v1/volumes/${volume.id}/detach`)).status === 200);
  });

  it('a machine can have eight volumes; the ninth attach is a 409', async () => {
    const full = await newMachine({ memory_mb: 256 });
    const nine = await Promise.all(Array.from({ length: 9 }, () => newVolume()));
    for (const volume of nine.slice(0, 8)) await attach(volume, full);
    assert.equal((await sh(full.id, 'findmnt -l -t ext4 -no TARGET | grep -c ^/mnt/')).stdout, '8\n');
    const ninth = await call('POST', `/v1/volumes/${nine[8]?.id}/attach`, { machine_id: full.id });
    assert.equal(ninth.status, 409);
    await destroyMachine(full.id);
    const [first] = nine;
    assert.equal((await expectStatus<Volume>(200, 'GET', `/v1/volumes/${first?.id}`)).state, 'available');
  });

  it('a machine created with volumes has them mounted when it answers, the inner one too, and finds their data', async () => {
    const [outer, inner] = [await newVolume(), await newVolume()];
    const volumes = [
      { volume_id: inner.id, mount_path: '/data/inner' },
      { volume_id: outer.id, mount_path: '/data' },
    ];
    const first = await newMachine({ memory_mb: 256, volumes });
    assert.equal(
      (await sh(first.id, 'findmnt -l -t ext4 -no TARGET | grep ^/data | sort')).stdout,
      '/data\n/data/inner\n',
    );
    await sh(first.id, 'echo kept > /data/inner/file');
    await destroyMachine(first.id);
    const second = await newMachine({ memory_mb: 256, volumes: [{ volume_id: inner.id }] });
    assert.equal((await sh(second.id, `cat /mnt/${inner.id}/file`)).stdout, 'kept\n');
    await destroyMachine(second.id);
    assert.equal((await expectStatus<Volume>(200, 'GET', `/v1/volumes/${inner.id}`)).state, 'available');
  });

  it('invalid sizes and paths, a detach of a free volume and a delete of an attached one are refused', async () => {
    const volume = await newVolume();
    assert.equal((await call('POST', '/v1/volumes', { size_gb: 4 })).status, 400);
    for (const path of ['relative', '/', '/proc/x', '/dev', '/a/../b', '/a//b', '/a/']) {
      const body = { machine_id: machine.id, mount_path: path };
      assert.equal((await call('POST', `/v1/volumes/${volume.id}/attach`, body)).status, 400, path);
    }
    assert.equal((await call('POST', `/v1/volumes/${volume.id}/detach`)).status, 409);
    await attach(volume, machine, '/taken');
    assert.equal((await call('DELETE', `/v1/volumes/${volume.id}`)).status, 409);
    const second = await newVolume();
    const taken = { machine_id: machine.id, mount_path: '/taken' };
    assert.equal((await call('POST', `/v1/volumes/${second.id}/attach`, taken)).status, 409);
    await detach(volume);
  });

  it('a machine made from a kept root disk has its files, and a larger disk when asked for', async () => {
    const first = await newMachine({ memory_mb: 256, rootfs_size_gb: 3 });
    const nameOfFirst = (await sh(first.id, 'echo kept > /root/file; hostname')).stdout.trim();
    const { root_volume_id: volumeId } = await expectStatus<Machine>(
      200,
      'DELETE',
      `/v1/machines/${first.id}?preserve_storage=true`,
    );
    const as = (body: object) => call<Machine>('POST', '/v1/machines', { root_volume_id: volumeId, ...body });
    assert.equal((await as({ rootfs_size_gb: 2 })).status, 400);
    assert.equal((await call('POST', `/v1/volumes/${volumeId}/attach`, { machine_id: machine.id })).status, 409);
    const made = await as({ memory_mb: 256, rootfs_size_gb: 5 });
    assert.equal(made.status, 201);
    machines.push(made.body);
    assert.equal(made.body.root_volume_id, volumeId);
    assert.equal((await call('GET', `/v1/volumes/${volumeId}`)).status, 404);
    const { stdout } = await sh(made.body.id, 'cat /root/file /etc/hostname; df --output=size -B1G / | tail -1');
    const [kept, hostname, size] = stdout.trim().split('\n');
    assert.equal(kept, 'kept');
    assert.notEqual(hostname, nameOfFirst);
    assert.ok(Number(size) >= 4, `a root file system of ${size} GiB`);
    assert.equal((await getMachine(made.body.id)).rootfs_size_gb, 5);
  });

  it('the activity feed has every operation, with ids and sizes but no names', async () => {
    const volume = await newVolume();
    await attach(volume, machine);
    await detach(volume);
    await expectStatus(204, 'DELETE', `/v1/volumes/${volume.id}`);
    type Feed = { activity: { action: string; metadata: object }[] };
    const { activity } = await expectStatus<Feed>(200, 'GET', `/v1/activity?category=volume&q=${volume.id}`);
    assert.deepEqual(
      activity.map(({ action, metadata }) => [action, metadata]),
      [
        ['volume.deleted', { volume_id: volume.id }],
        ['volume.detached', { volume_id: volume.id }],
        ['volume.attached', { volume_id: volume.id }],
        ['volume.created', { volume_id: volume.id, size_gb: 5 }],
      ],
    );
  });
});
