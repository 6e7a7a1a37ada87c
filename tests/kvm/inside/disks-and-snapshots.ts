// Tests volumes and snapshots on KVM: attaches a volume to running machines, and makes new machines from disk and
// memory snapshots.
import assert from 'node:assert/strict';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { outputOf, step } from './steps.ts';

/**
 * Carries a volume from `clone` to `booted`, then creates machines from a disk snapshot and a memory snapshot. Both
 * machines must be running: `booted` was booted cold, `clone` was cloned. Removes what it creates.
 */
export async function disksAndSnapshots(sandbar: Client, booted: Machine, clone: Machine): Promise<void> {
  const run = ({ id }: Machine, command: string) => outputOf(sandbar, id, command);
  await carryVolume(sandbar, booted, clone, run);
  await fromDiskSnapshot(sandbar, clone, run);
  await fromMemorySnapshot(sandbar, clone, run);
}

type Run = (machine: Machine, command: string) => Promise<string>;

async function carryVolume(sandbar: Client, booted: Machine, clone: Machine, run: Run): Promise<void> {
  const volume = await sandbar.volumes.create({ name: 'carried', size_gb: 5 });
  for (const [machine, command] of [
    [clone, 'echo carried > /mnt/data/file'],
    [booted, 'cat /mnt/data/file'],
  ] as const) {
    const target = { machine_id: machine.id, mount_path: '/mnt/data' };
    await step('attach', () => sandbar.volumes.attach(volume.id, target));
    assert.equal(await run(machine, command), machine === booted ? 'carried\n' : '');
    await step('detach', () => sandbar.volumes.detach(volume.id));
  }
  await sandbar.volumes.delete(volume.id);
}

async function fromDiskSnapshot(sandbar: Client, machine: Machine, run: Run): Promise<void> {
  await run(machine, 'echo kept > /root/snapped');
  const snapshot = await step('disk snapshot', () => sandbar.snapshots.create(machine.id));
  await run(machine, 'echo later > /root/snapped');
  const made = await step('create from it', () => sandbar.machines.create({ snapshot_id: snapshot.id }));
  assert.equal(await run(made, 'cat /root/snapped'), 'kept\n');
  assert.equal(await run(machine, 'cat /root/snapped'), 'later\n');
  await sandbar.machines.destroy(made.id);
  await sandbar.snapshots.delete(snapshot.id);
}

/** Checks that a process of the snapshot goes on in the new machine, and that the new machine has another identity. */
async function fromMemorySnapshot(sandbar: Client, machine: Machine, run: Run): Promise<void> {
  await run(
    machine,
    'echo remembered > /dev/shm/memory; setsid sleep 100000 > /dev/null 2>&1 & echo $! > /dev/shm/pid',
  );
  const snapshot = await step('memory snapshot', () => sandbar.snapshots.create(machine.id, { memory: true }));
  const made = await step('resume it', () => sandbar.machines.create({ snapshot_id: snapshot.id }));
  const ask = 'cat /dev/shm/memory; kill -0 $(cat /dev/shm/pid) && echo alive; cat /etc/machine-id';
  const [before, after] = [await run(machine, ask), await run(made, ask)].map((text) => text.split('\n'));
  assert.deepEqual(after?.slice(0, 2), ['remembered', 'alive']);
  assert.deepEqual(before?.slice(0, 2), ['remembered', 'alive']);
  assert.notEqual(after?.[2], before?.[2]);
  await sandbar.machines.destroy(made.id);
  await sandbar.snapshots.delete(snapshot.id);
}
