// Tests that machines with a disk of their own start as clones of a bare template, and what happens when that fails.
// Uses a fake hypervisor with the real templates and machines.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { shapeOf } from '../src/machines/starter.ts';
import { bareShapeOf } from '../src/templates/shape.ts';
import { bareKeyOf, checkMachines, create, idOf, imageOf, NOTHING, specOf, vmOf, wayOf } from './support/clones.ts';
import { type FakeHost, until } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

const VOLUME = '019a0000-0000-7000-8000-0000000000ff';

describe('bare templates', () => {
  const makeHost = makeHosts();
  const newHost = () => makeHost({ size: 0 });
  const bareShape = (host: FakeHost) => bareShapeOf(shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] }));
  const hasBare = (host: FakeHost) => host.templates?.has(bareKeyOf(host)) === true;
  const diskOf = (host: FakeHost, number: number) => join(host.paths.machines, idOf(number), 'disk.qcow2');

  /** Creates machine 2. `more` says from which snapshot or volume. */
  const createFrom = (host: FakeHost, more: object) =>
    host.registry.ensure(idOf(2), { generation: 1, desired: 'running', spec: { ...specOf(2), ...more } });
  const stop = (host: FakeHost, number: number, generation: number) =>
    host.registry.ensure(idOf(number), { generation, desired: 'stopped', spec: specOf(number) });

  /** A host with a bare template, and with a stopped machine 1 of generation 2 whose guest has written to its disk. */
  async function hostWithStopped(host = newHost()): Promise<FakeHost> {
    await host.start();
    host.templates?.pin(bareShape(host));
    await until('the bare template', () => hasBare(host));
    await create(host, 1);
    vmOf(host, 1).write('of machine 1');
    await stop(host, 1, 2);
    return host;
  }

  it('a machine that was stopped starts as a clone on its own disk, which stays as it is (CLN-1)', async () => {
    const host = await hostWithStopped();
    const disk = readFileSync(diskOf(host, 1));
    const from = host.hypervisor.passed.length;
    await create(host, 1, { generation: 3 });
    assert.equal(wayOf(host, 1), 'clone now');
    assert.deepEqual(host.hypervisor.passed.slice(from), ['attach', 'assign', 'launch', 'connectGuest', 'setIdentity']);
    assert.equal(host.hypervisor.launched.at(-1)?.diskPath, diskOf(host, 1));
    assert.deepEqual(readFileSync(diskOf(host, 1)), disk);
    checkMachines(host);
  });

  it('the first cold boot of a machine with a disk makes the bare template of its size', async () => {
    const host = newHost();
    await host.start();
    await create(host, 1);
    assert.equal(hasBare(host), false);
    await stop(host, 1, 2);
    await create(host, 1, { generation: 3 });
    assert.equal(wayOf(host, 1), 'boot');
    await until('the bare template', () => hasBare(host));
    const maker = host.hypervisor.launched.find(({ start }) => start.kind === 'boot' && start.isBare);
    assert.match(maker?.diskPath ?? '', /templates\/\.making-/);
    await stop(host, 1, 4);
    await create(host, 1, { generation: 5 });
    assert.equal(wayOf(host, 1), 'clone now');
    checkMachines(host);
  });

  it('the first machine of a snapshot is a clone too, and runs no program of the disk before its identity (CLN-1)', async () => {
    const host = await hostWithStopped();
    await create(host, 1, { generation: 3 });
    const snapshotId = '019a0000-0000-7000-9000-000000000001';
    await host.registry.takeSnapshot(idOf(1), snapshotId, { generation: 3, memory: false });
    await createFrom(host, { snapshot_id: snapshotId });
    assert.equal(wayOf(host, 2), 'clone now');
    assert.equal(host.hypervisor.launched.at(-1)?.layerPaths.length, 1);
    checkMachines(host);
  });

  it('a kept disk becomes the disk of a clone, and is grown before the guest looks at it', async () => {
    const host = await hostWithStopped();
    await host.registry.destroy(idOf(1), 3, VOLUME);
    const from = host.hypervisor.passed.length;
    await createFrom(host, { root_volume_id: VOLUME, rootfs_size_gb: 4 });
    assert.equal(wayOf(host, 2), 'clone now');
    const passed = host.hypervisor.passed.slice(from);
    assert.deepEqual(passed, ['attach', 'assign', 'launch', 'growDisk', 'connectGuest', 'setIdentity']);
    assert.equal(vmOf(host, 2).diskBytes, 4 * 2 ** 30);
    assert.match(readFileSync(diskOf(host, 2), 'latin1'), /of machine 1$/);
    checkMachines(host);
  });

  for (const point of ['launch', 'growDisk', 'connectGuest', 'setIdentity'] as const) {
    it(`a clone that fails at ${point} is ended before the machine boots cold on the same disk (CTL-2)`, async () => {
      const host = await hostWithStopped();
      await host.registry.destroy(idOf(1), 3, VOLUME);
      host.hypervisor.faults.push(point);
      await createFrom(host, { root_volume_id: VOLUME, rootfs_size_gb: 4 });
      assert.equal(wayOf(host, 2), 'boot');
      assert.deepEqual(host.warnings, ['a bare clone was of no use']);
      assert.match(readFileSync(diskOf(host, 2), 'latin1'), /of machine 1$/);
      checkMachines(host);
      await host.registry.destroy(idOf(2), 4);
      await host.close();
      assert.deepEqual(host.left(), NOTHING);
    });
  }

  it('a clone that cannot be ended keeps its disk to itself: the machine does not boot (CTL-2)', async () => {
    const host = await hostWithStopped();
    host.hypervisor.faults.push('setIdentity', 'end');
    await assert.rejects(create(host, 1, { generation: 3 }));
    assert.deepEqual(host.hypervisor.violations, []);
    assert.match(readFileSync(diskOf(host, 1), 'latin1'), /of machine 1$/);
  });

  it('disks that cannot be mounted do not remove the template that all others use', async () => {
    const host = await hostWithStopped();
    host.hypervisor.isFaulty = (point, isClone) => point === 'setIdentity' && isClone;
    for (let generation = 3; generation < 11; generation += 2) {
      await create(host, 1, { generation });
      assert.equal(wayOf(host, 1), 'boot');
      await stop(host, 1, generation + 1);
    }
    assert.ok(hasBare(host));
  });

  it('a template whose guests do not answer is removed after three failures', async () => {
    const host = await hostWithStopped();
    host.hypervisor.isFaulty = (point, isClone) => point === 'connectGuest' && isClone;
    for (const generation of [3, 5, 7]) {
      assert.ok(hasBare(host));
      await create(host, 1, { generation });
      await stop(host, 1, generation + 1);
    }
    assert.equal(hasBare(host), false);
  });

  it('a guest agent that cannot wait for its disk makes no template, and is asked only once', async () => {
    const host = newHost();
    host.hypervisor.canBeBare = false;
    await host.start();
    await create(host, 1);
    for (const generation of [3, 5, 7]) {
      await stop(host, 1, generation - 1);
      await create(host, 1, { generation });
      assert.equal(wayOf(host, 1), 'boot');
      await until('the attempt', () => host.hypervisor.passed.includes('checkBare') && host.left().files.length === 1);
    }
    assert.equal(host.hypervisor.passed.filter((point) => point === 'checkBare').length, 1);
    assert.equal(host.hypervisor.passed.includes('warmUp'), true, "the shape's own template is made");
    checkMachines(host);
  });

  it('a destroy while a bare clone starts leaves nothing (CTL-4)', async () => {
    for (const point of ['launch', 'connectGuest', 'setIdentity'] as const) {
      const host = await hostWithStopped();
      const before = host.hypervisor.passed.filter((one) => one === point).length;
      const release = host.hypervisor.hold(point);
      const starting = create(host, 1, { generation: 3 }).catch((error) => error);
      await until(point, () => host.hypervisor.passed.filter((one) => one === point).length > before);
      const destroying = host.registry.destroy(idOf(1), 4);
      if (point === 'launch') release();
      await destroying;
      release();
      await starting;
      await host.close();
      assert.deepEqual(host.left(), NOTHING, point);
    }
  });

  it('whichever step of a start was the last of an agent, the disk is as it was, and one VM at most has it (CTL-3)', async () => {
    const points: FaultPoint[] = ['attach', 'assign', 'launch', 'connectGuest', 'setIdentity'];
    for (const point of points) {
      for (const when of ['before', 'after'] as const) {
        const host = await hostWithStopped();
        const disk = readFileSync(diskOf(host, 1));
        const death = new Promise<void>((resolve) => {
          host.hypervisor.isFatal = (one, at) => {
            if (host.isDead || one !== point || at !== when) return false;
            host.kill();
            resolve();
            return true;
          };
        });
        void create(host, 1, { generation: 3 }).catch(() => {});
        await death;
        host.hypervisor.isFatal = () => false;
        await host.start();
        checkMachines(host);
        assert.equal(host.hypervisor.running.size, 0, `${point} ${when}`);
        await until('the bare template is loaded', () => hasBare(host));
        await create(host, 1, { generation: 4 });
        assert.equal(wayOf(host, 1), 'clone now');
        assert.deepEqual(readFileSync(diskOf(host, 1)), disk, `${point} ${when}`);
        checkMachines(host);
      }
    }
  });
});
