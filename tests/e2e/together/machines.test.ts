// The life of a machine, from create to destroy, on a real microVM and through the public API alone.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { ActivityList } from '@sandbar/contract/activity.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { call, createMachine, destroyMachine, expectStatus, getMachine, sh, until } from '../support/service.ts';

describe('machines', () => {
  let machine: Machine;
  let other: Machine;
  before(async () => {
    machine = await createMachine({
      name: 'first',
      metadata: { purpose: 'e2e', n: 1 },
      vcpus: 2,
      memory_mb: 512,
      rootfs_size_gb: 3,
    });
    other = await createMachine();
  });
  after(() => Promise.all([machine, other].map(({ id }) => destroyMachine(id))));

  it('create returns a running machine with the requested name, size and metadata', async () => {
    assert.equal(machine.state, 'running');
    assert.deepEqual(
      [machine.name, machine.vcpus, machine.memory_mb, machine.rootfs_size_gb, machine.stack, machine.metadata],
      ['first', 2, 512, 3, 'base', { purpose: 'e2e', n: 1 }],
    );
    assert.match(machine.isolation, /^(kvm|emulated)$/);
    assert.match(machine.started_at ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.deepEqual(await getMachine(machine.id), machine);
  });

  it('the guest has the cores, memory, disk, address, machine id and clock that the API reports', async () => {
    const { stdout } = await sh(
      machine.id,
      `nproc; awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo; df -BM --output=size / | tail -1;
       ip -4 -o addr show eth0; cat /etc/machine-id; date +%s; ps -o comm= -p 1; uname -r`,
    );
    const [cores, memory, disk, address, machineId, clock, , kernel] = stdout.trim().split('\n');
    assert.equal(cores, '2');
    assert.ok(Number(memory) > 430 && Number(memory) <= 512, `memory ${memory}`);
    assert.ok(Number.parseInt(disk ?? '', 10) > 2700, `disk ${disk}`);
    assert.match(address ?? '', new RegExp(`inet ${machine.private_ip}/`));
    assert.equal(machineId, machine.id.replaceAll('-', ''));
    assert.ok(Math.abs(Number(clock) - Date.now() / 1000) < 5, 'clock');
    assert.match(kernel ?? '', /cloud-amd64/);
  });

  it('two machines differ in address and identity, and names resolve', async () => {
    assert.notEqual(other.private_ip, machine.private_ip);
    const { stdout, code } = await sh(
      other.id,
      'cat /etc/machine-id; getent hosts localhost; getent hosts deb.debian.org',
    );
    assert.equal(code, 0, 'deb.debian.org resolves');
    assert.notEqual(stdout.split('\n')[0], machine.id.replaceAll('-', ''));
  });

  it('an update sets when a running machine expires', async () => {
    const path = `/v1/machines/${other.id}`;
    const expiry = { expires_in_sec: 10, on_expiry: 'stop' };
    const { state, expires_at, on_expiry } = await expectStatus<Machine>(200, 'PATCH', path, expiry);
    assert.deepEqual([state, on_expiry], ['running', 'stop']);
    assert.match(expires_at ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });

  it('stop keeps the disk and the address, start runs the machine with both, and either can be repeated', async () => {
    await sh(machine.id, 'echo kept > /root/file');
    const stopped = await expectStatus<Machine>(200, 'POST', `/v1/machines/${machine.id}/stop`);
    assert.equal(stopped.state, 'stopped');
    assert.equal(
      (await expectStatus<Machine>(200, 'POST', `/v1/machines/${machine.id}/stop`)).stopped_at,
      stopped.stopped_at,
    );
    const refused = await call('POST', `/v1/machines/${machine.id}/execs`, { command: 'true' });
    assert.deepEqual([refused.status, refused.body.code], [409, 'conflict']);
    const started = await expectStatus<Machine>(200, 'POST', `/v1/machines/${machine.id}/start`);
    assert.deepEqual([started.state, started.private_ip], ['running', machine.private_ip]);
    assert.equal(
      (await expectStatus<Machine>(200, 'POST', `/v1/machines/${machine.id}/start`)).started_at,
      started.started_at,
    );
    assert.equal((await sh(machine.id, 'cat /root/file')).stdout, 'kept\n');
  });

  it('a machine whose guest powers off is stopped, and can be started again', async () => {
    await call('POST', `/v1/machines/${machine.id}/execs`, {
      argv: ['python3', '-c', 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'],
    });
    await until('stopped', async () => (await getMachine(machine.id)).state === 'stopped', 10_000);
    assert.equal((await expectStatus<Machine>(200, 'POST', `/v1/machines/${machine.id}/start`)).state, 'running');
  });

  it('the list of machines can be filtered by state, name and metadata', async () => {
    const list = async (query: string) =>
      (await expectStatus<{ machines: Machine[] }>(200, 'GET', `/v1/machines${query}`)).machines.map(({ id }) => id);
    assert.ok((await list('')).includes(machine.id));
    assert.deepEqual(await list('?name=first&metadata.purpose=e2e&state=running'), [machine.id]);
    assert.deepEqual(await list('?metadata.purpose=other'), []);
  });

  it('destroy returns the state destroyed; a second destroy is a 404, but the machine can still be read', async () => {
    const doomed = await createMachine();
    const gone = await expectStatus<Machine>(200, 'DELETE', `/v1/machines/${doomed.id}`);
    assert.equal(gone.state, 'destroyed');
    await expectStatus(404, 'DELETE', `/v1/machines/${doomed.id}`);
    assert.equal((await getMachine(doomed.id)).state, 'destroyed');
    const { machines } = await expectStatus<{ machines: Machine[] }>(200, 'GET', '/v1/machines');
    assert.ok(!machines.some(({ id }) => id === doomed.id));
  });

  it('four creates at once get four addresses and four disks', async () => {
    const machines = await Promise.all([1, 2, 3, 4].map(() => createMachine({ memory_mb: 128 })));
    try {
      assert.equal(new Set(machines.map(({ private_ip }) => private_ip)).size, 4);
      const answers = await Promise.all(machines.map(({ id }) => sh(id, 'hostname; cat /etc/machine-id')));
      assert.equal(new Set(answers.map(({ stdout }) => stdout)).size, 4);
    } finally {
      await Promise.all(machines.map(({ id }) => destroyMachine(id)));
    }
  });

  it('a machine that has expired is stopped with its disk, and can be started again', async () => {
    // A test above set this machine's expiry. Most of the time until then has already passed.
    await until('it has expired', async () => (await getMachine(other.id)).state === 'stopped', 60_000);
    const { activity } = await expectStatus<ActivityList>(200, 'GET', `/v1/machines/${other.id}/activity`);
    assert.deepEqual([activity[0]?.action, activity[0]?.actor], ['machine.stopped', 'system:expiry']);
    const started = await expectStatus<Machine>(200, 'POST', `/v1/machines/${other.id}/start`);
    assert.deepEqual([started.state, started.expires_at], ['running', null]);
    assert.equal((await sh(other.id, 'echo works')).stdout, 'works\n');
  });

  it('the list of images has exactly one default, the base stack', async () => {
    const { images } = await expectStatus<{ images: { stack: string; default: boolean }[] }>(200, 'GET', '/v1/images');
    assert.deepEqual(
      images.filter((image) => image.default).map((image) => image.stack),
      ['base'],
    );
  });
});
