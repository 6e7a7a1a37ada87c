// Disk and memory snapshots of real machines, through the public API.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import {
  call,
  createMachine,
  expectStatus,
  getMachine,
  HOME,
  qemuPidOf,
  sh,
  startExec,
  until,
} from '../support/service.ts';

const WANTED = { memory_mb: 256 };

describe('snapshots', () => {
  const machines: Machine[] = [];
  let machine: Machine;
  before(async () => {
    machine = await newMachine();
  });
  after(async () => {
    for (const { id } of machines) await call('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
  });

  async function newMachine(wanted: object = WANTED): Promise<Machine> {
    const made = await createMachine(wanted);
    machines.push(made);
    return made;
  }

  const take = (of: Machine, body: object = {}) =>
    expectStatus<Snapshot>(201, 'POST', `/v1/machines/${of.id}/snapshots`, body);

  it('a machine goes back to what was on its disk, running or stopped, and its volume stays as it is (CLN-4)', async () => {
    const volume = await expectStatus<Volume>(201, 'POST', '/v1/volumes', { size_gb: 5 });
    await expectStatus(200, 'POST', `/v1/volumes/${volume.id}/attach`, { machine_id: machine.id, mount_path: '/data' });
    await sh(machine.id, 'echo before > /root/file; echo before > /data/file');
    const snapshot = await take(machine, { name: 'before' });
    assert.deepEqual(
      [snapshot.kind, snapshot.state, snapshot.machine_id, snapshot.size_gb, snapshot.name],
      ['disk', 'ready', machine.id, machine.rootfs_size_gb, 'before'],
    );
    await sh(machine.id, 'echo after > /root/file; echo after > /data/file; touch /root/new');

    const restored = await expectStatus<Machine>(200, 'POST', `/v1/snapshots/${snapshot.id}/restore`);
    assert.equal(restored.state, 'running');
    assert.equal((await sh(machine.id, 'cat /root/file /data/file; ls /root/new')).stdout, 'before\nafter\n');

    await sh(machine.id, 'echo again > /root/file');
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/stop`);
    const still = await expectStatus<Machine>(200, 'POST', `/v1/snapshots/${snapshot.id}/restore`);
    assert.equal(still.state, 'stopped');
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/start`);
    assert.equal((await sh(machine.id, 'cat /root/file')).stdout, 'before\n');
    await expectStatus(200, 'POST', `/v1/volumes/${volume.id}/detach`);
    await expectStatus(204, 'DELETE', `/v1/volumes/${volume.id}`);
  });

  it('two requests with one Idempotency-Key take one snapshot, and a later replay takes no other one (CTL-1)', async () => {
    const own = await newMachine();
    const path = `/v1/machines/${own.id}/snapshots`;
    const send = () => call<Snapshot>('POST', path, { name: 'once' }, { 'idempotency-key': `once ${own.id}` });
    await sh(own.id, 'echo first > /root/file');
    const [one, two] = await Promise.all([send(), send()]);
    assert.deepEqual([one.status, two.status].sort(), [200, 201]);
    assert.deepEqual(one.body, two.body);
    await sh(own.id, 'echo second > /root/file');
    const replay = await send();
    assert.deepEqual([replay.status, replay.headers.get('idempotent-replayed')], [200, 'true']);
    assert.equal(replay.body.id, one.body.id);
    const { snapshots } = await expectStatus<{ snapshots: Snapshot[] }>(200, 'GET', path);
    assert.equal(snapshots.length, 1);
    await expectStatus(200, 'POST', `/v1/snapshots/${one.body.id}/restore`);
    assert.equal((await sh(own.id, 'cat /root/file')).stdout, 'first\n');
    await expectStatus(204, 'DELETE', `/v1/snapshots/${one.body.id}`);
    assert.equal((await send()).status, 404);
  });

  it('machines made from a snapshot each begin with a copy of its disk, and keep it when the snapshot is deleted', async () => {
    await sh(machine.id, 'echo shared > /root/file');
    const snapshot = await take(machine);
    await sh(machine.id, 'echo own > /root/file');
    const [one, two] = [await newMachine({ snapshot_id: snapshot.id }), await newMachine({ snapshot_id: snapshot.id })];
    assert.equal(one.snapshot_id, snapshot.id);
    await expectStatus(204, 'DELETE', `/v1/snapshots/${snapshot.id}`);
    await sh(one.id, 'echo one >> /root/file');
    await expectStatus(200, 'POST', `/v1/machines/${one.id}/stop`);
    await expectStatus(200, 'POST', `/v1/machines/${one.id}/start`);
    assert.equal((await sh(one.id, 'cat /root/file')).stdout, 'shared\none\n');
    assert.equal((await sh(two.id, 'cat /root/file')).stdout, 'shared\n');
    assert.equal((await sh(machine.id, 'cat /root/file')).stdout, 'own\n');
    const names = await Promise.all([machine, one, two].map(({ id }) => sh(id, 'hostname; cat /etc/machine-id')));
    assert.equal(new Set(names.map(({ stdout }) => stdout)).size, 3);
  });

  it('a machine with snapshots can be destroyed only together with its snapshots', async () => {
    const doomed = await newMachine();
    const snapshot = await take(doomed);
    const refused = await call('DELETE', `/v1/machines/${doomed.id}`);
    assert.equal(refused.status, 409);
    assert.equal((await getMachine(doomed.id)).state, 'running');
    await expectStatus(200, 'DELETE', `/v1/machines/${doomed.id}?delete_snapshots=true`);
    assert.equal((await call('GET', `/v1/snapshots/${snapshot.id}`)).status, 404);
    type Feed = { activity: { action: string; metadata: Record<string, unknown> }[] };
    const { activity } = await expectStatus<Feed>(200, 'GET', `/v1/machines/${doomed.id}/activity`);
    const destroyed = activity.find(({ action }) => action === 'machine.destroyed');
    assert.deepEqual(destroyed?.metadata, { preserve_storage: false, snapshots_deleted: 1 });
  });

  it('a long chain of disk layers is shortened while its machine runs, and the content of the disk does not change', async () => {
    const long = await newMachine();
    const pid = qemuPidOf(long.id);
    for (let layer = 0; layer < 10; layer++) {
      await sh(long.id, `head -c 300000 /dev/urandom > /root/file${layer}; echo ${layer} >> /root/log; sync`);
      await take(long);
    }
    const sum = 'cat /root/file* /root/log | sha256sum';
    const before = (await sh(long.id, sum)).stdout;
    await until('a short chain', () => layersOf(long.id) <= 8, 60_000);
    await sh(long.id, 'echo 3 > /proc/sys/vm/drop_caches');
    assert.equal((await sh(long.id, sum)).stdout, before);
    assert.equal(qemuPidOf(long.id), pid);
    await expectStatus(200, 'POST', `/v1/machines/${long.id}/stop`);
    await expectStatus(200, 'POST', `/v1/machines/${long.id}/start`);
    assert.equal((await sh(long.id, sum)).stdout, before);
    const { snapshots } = await expectStatus<{ snapshots: Snapshot[] }>(
      200,
      'GET',
      `/v1/machines/${long.id}/snapshots`,
    );
    const oldest = await newMachine({ snapshot_id: snapshots.at(-1)?.id });
    assert.equal((await sh(oldest.id, 'cat /root/log')).stdout, '0\n');
  });

  it('machines made from a memory snapshot go on where it was, with an identity of their own (CLN-1, CLN-2, CLN-4)', async () => {
    const source = await newMachine();
    const count = 'i=0; while true; do i=$((i+1)); echo $i > /run/count; sleep 0.1; done';
    await startExec(source.id, { command: count });
    await until('counting', async () => Number((await sh(source.id, 'cat /run/count')).stdout) > 10);
    const snapshot = await take(source, { memory: true });
    assert.equal(snapshot.kind, 'memory');
    const frozenAt = Number((await sh(source.id, 'cat /run/count')).stdout);
    const made = [await newMachine({ snapshot_id: snapshot.id }), await newMachine({ snapshot_id: snapshot.id })];
    for (const resumed of made) {
      const first = Number((await sh(resumed.id, 'cat /run/count')).stdout);
      assert.ok(first > 5 && first < frozenAt + 200, `a counter at ${first}, frozen at ${frozenAt}`);
      await until('it goes on', async () => Number((await sh(resumed.id, 'cat /run/count')).stdout) > first + 3);
      const { stdout } = await sh(
        resumed.id,
        'hostname; cat /etc/hostname; ip -4 -o addr show eth0 | grep -o "inet [0-9.]*"',
      );
      const name = `m-${resumed.id.slice(-12)}`;
      assert.deepEqual(stdout.trim().split('\n'), [name, name, `inet ${resumed.private_ip}`]);
    }
    const random = await Promise.all(
      [source, ...made].map(({ id }) => sh(id, 'cat /etc/machine-id; head -c 32 /dev/urandom | base64')),
    );
    assert.equal(new Set(random.flatMap(({ stdout }) => stdout.trim().split('\n'))).size, 6);
    const drift = Number((await sh(made[0]?.id ?? '', 'date +%s')).stdout) - Date.now() / 1000;
    assert.ok(Math.abs(drift) < 5, `a clock ${drift} s away`);
    assert.equal((await getMachine(source.id)).state, 'running');
    const other = { snapshot_id: snapshot.id, memory_mb: 512 };
    assert.equal((await call('POST', '/v1/machines', other)).status, 400);
  });

  it('invalid creates, restores and snapshots are refused', async () => {
    const snapshot = await take(machine);
    const post = (body: object) => call('POST', '/v1/machines', body);
    assert.equal((await post({ snapshot_id: snapshot.id, rootfs_size_gb: 1 })).status, 400);
    assert.equal((await post({ snapshot_id: snapshot.id, root_volume_id: snapshot.id })).status, 400);
    assert.equal((await post({ snapshot_id: machine.id })).status, 404);
    assert.equal((await call('POST', `/v1/snapshots/${machine.id}/restore`)).status, 404);
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/stop`);
    assert.equal((await call('POST', `/v1/machines/${machine.id}/snapshots`, { memory: true })).status, 409);
    const ofStopped = await take(machine);
    assert.equal(ofStopped.state, 'ready');
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/start`);
  });
});

/** The number of disk layers in the host agent's record of the machine. */
function layersOf(machineId: string): number {
  const record = JSON.parse(readFileSync(`${HOME}/machines/${machineId}/machine.json`, 'utf8')) as { layers: string[] };
  return record.layers.length;
}
