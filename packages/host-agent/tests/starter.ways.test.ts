// Tests all ways in which a machine gets its VM, with a fault at every step of each. Uses a fake hypervisor with the
// real templates, pool and machines.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { shapeOf } from '../src/machines/starter.ts';
import { CommandError } from '../src/run-command.ts';
import { diskFull } from '../src/storage/overlay.ts';
import {
  checkMachines,
  create,
  filled,
  idOf,
  imageOf,
  keyOf,
  NOTHING,
  specOf,
  vmOf,
  warmHost,
  wayOf,
} from './support/clones.ts';
import { type FakeHost, until } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

describe('starter', () => {
  const newHost = makeHosts();
  const destroyAll = async (host: FakeHost) => {
    for (const { machine_id: id } of host.registry.reports()) {
      // If a step fails, the delete has to be repeated.
      await host.registry.destroy(id, 9).catch(() => host.registry.destroy(id, 9));
    }
  };

  it('the first machine of a shape boots cold, and a template is made after it', async () => {
    const host = newHost({ size: 0 });
    await host.start();
    await create(host, 1);
    assert.deepEqual(
      host.hypervisor.launched.map(({ start }) => start.kind === 'boot' && start.memoryPath),
      [undefined],
    );
    await until('a template', () => host.templates?.has(keyOf(host)) === true);
    const [, maker] = host.hypervisor.launched;
    assert.match(maker?.start.kind === 'boot' ? String(maker.start.memoryPath) : '', /\/memory$/);
    assert.deepEqual(host.left().vms, [idOf(1)]);
    await create(host, 2);
    assert.equal(wayOf(host, 2), 'clone now');
    checkMachines(host);
  });

  it('a clone that is made now has its address before it runs, and its disk is the template disk (NET-4)', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    const from = host.hypervisor.passed.length;
    await create(host, 2);
    assert.deepEqual(host.hypervisor.passed.slice(from), ['attach', 'assign', 'launch', 'connectGuest', 'setIdentity']);
    assert.deepEqual(
      readFileSync(join(host.paths.machines, idOf(2), 'disk.qcow2')),
      readFileSync(join(host.paths.templates, keyOf(host), 'disk.qcow2')),
    );
  });

  it('a ready clone gets its names and its address, then runs, then has its identity; another takes its place (NET-4, CLN-1)', async () => {
    const host = await warmHost(newHost({ size: 1 }));
    const [ready] = [...host.hypervisor.running.values()].filter((vm) => vm.runDir.startsWith(host.paths.runPool));
    const from = host.hypervisor.passed.length;
    await create(host, 2);
    const vm = vmOf(host, 2);
    assert.equal(vm, ready);
    assert.equal(vm.runDir, join(host.paths.runMachines, idOf(2)));
    assert.deepEqual(host.hypervisor.passed.slice(from, from + 4), ['moveTo', 'assign', 'resume', 'setIdentity']);
    assert.equal(wayOf(host, 2), 'ready clone');
    await filled(host);
    checkMachines(host);
    const left = host.left();
    assert.equal(left.vms.length, 3);
    assert.equal(left.files.length, 2 + 2, 'a disk and a run directory of the pool, two of machines');
    await destroyAll(host);
    await host.close();
    assert.deepEqual(host.left(), NOTHING);
  });

  it('a pool of size 0 or without a memory budget prepares no clones', async () => {
    for (const limits of [{ size: 0 }, { total: 0 }]) {
      const host = newHost({ ...limits, baseline: 2 });
      await host.start();
      await create(host, 1);
      await until('a template', () => host.templates?.has(keyOf(host)) === true);
      await create(host, 2);
      assert.equal(wayOf(host, 2), 'clone now');
      assert.deepEqual(host.pool?.status(), { ready: 0, target: 0 });
      assert.deepEqual(readdirSync(host.paths.pool), []);
    }
  });

  it('a burst of creates makes the pool keep as many clones, within the total limit', async () => {
    const host = newHost({ size: 3, total: 4, window: 2 });
    await host.start();
    const shapes = [{ vcpus: 1 }, { vcpus: 2 }];
    for (const [index, shape] of shapes.entries()) await create(host, index + 1, shape);
    for (const shape of shapes) await until('a template', () => host.templates?.has(keyOf(host, shape)) === true);
    await Promise.all([11, 12, 13, 14].map((number) => create(host, number, shapes[number % 2])));
    await filled(host);
    assert.deepEqual(host.pool?.status(), { ready: 4, target: 4 });
    checkMachines(host);
  });

  it("a disk larger than the template's is grown before the guest gets its identity", async () => {
    const host = await warmHost(newHost({ size: 1 }));
    // Machines with larger disks are cloned from the template of the default disk size. Here that template has 1 GiB,
    // like the image.
    for (const number of [2, 3]) {
      const from = host.hypervisor.passed.length;
      await create(host, number, { rootfs_size_gb: 4 });
      const passed = host.hypervisor.passed.slice(from);
      assert.ok(passed.indexOf('growDisk') < passed.indexOf('setIdentity'), passed.join(' '));
      assert.equal(vmOf(host, number).diskBytes, 4 * 2 ** 30);
    }
    checkMachines(host);
  });

  it('a machine that was stopped boots cold from its own disk', async () => {
    const host = await warmHost(newHost({}));
    await host.registry.ensure(idOf(1), { generation: 2, desired: 'stopped', spec: specOf(1) });
    await create(host, 1, { generation: 3 });
    assert.equal(wayOf(host, 1), 'boot');
  });

  /**
   * Creates three machines. The first is created before there is a template. The other two are created at the same time
   * when one clone is ready, so only one of them gets it. Together the three take every step by which a machine can get
   * its VM.
   */
  const live = async (host: FakeHost) => {
    await host.start();
    await create(host, 1).catch(() => create(host, 1));
    const wasHit = () => host.warnings.length > 0;
    await until('a template', () => host.templates?.has(keyOf(host)) === true || wasHit());
    await until('a ready clone', () => host.pool?.status().ready === 1 || wasHit());
    await Promise.all([create(host, 2), create(host, 3)]);
    checkMachines(host);
    await destroyAll(host);
    await host.close();
  };
  const passesOf = async (): Promise<[FaultPoint, number][]> => {
    const host = newHost({ size: 1 });
    await live(host);
    assert.deepEqual([host.left(), host.warnings], [NOTHING, []]);
    const seen = new Map<FaultPoint, number>();
    return host.hypervisor.passed.map((point) => {
      seen.set(point, (seen.get(point) ?? 0) + 1);
      return [point, seen.get(point) ?? 0];
    });
  };

  for (const kind of ['a failure', 'a tool that fails', 'a full disk'] as const) {
    it(`${kind} at any step of any way costs time and nothing else (CTL-2)`, async () => {
      const errors = {
        'a failure': (point: string) => new Error(`forced fault: ${point}`),
        'a tool that fails': () => new CommandError('nft failed'),
        'a full disk': () => diskFull(Object.assign(new Error('forced'), { code: 'ENOSPC' })),
      };
      const passes = await passesOf();
      assert.ok(new Set(passes.map(([point]) => point)).size >= 11);
      for (const [point, nth] of passes) {
        const host = newHost({ size: 1 });
        let count = 0;
        host.hypervisor.newFault = errors[kind];
        host.hypervisor.isFaulty = (one) => one === point && ++count === nth;
        const outcome = live(host);
        if (kind === 'a full disk') {
          // After another fault the agent falls back to another way to get a VM. On a full disk the fallback needs disk
          // space too, so the create may fail, but only with `fleet_capacity`.
          await outcome.catch(async (error) => {
            assert.equal(error.code, 'fleet_capacity', `${point} ${nth}: ${error}`);
            await destroyAll(host);
            await host.close();
          });
        } else await outcome.catch((error) => assert.fail(`${point} ${nth}: ${error.stack}`));
        assert.deepEqual(host.hypervisor.violations, []);
        // If a process could not be ended, the audit removes it.
        if (point === 'end' || point === 'detach') await host.audit.fix();
        assert.deepEqual(host.left(), NOTHING, `${point} ${nth}`);
      }
    });
  }

  for (const point of ['launch', 'connectGuest', 'setIdentity', 'warmUp', 'lease', 'pause'] as const) {
    it(`when ${point} fails for every clone, machines still run, and nothing is retried endlessly`, async () => {
      const host = await warmHost(newHost({ size: 2, baseline: 2 }));
      host.pool?.keep(shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] }));
      await filled(host);
      let faults = 0;
      host.hypervisor.isFaulty = (one, isClone) => isClone && one === point && ++faults > 0;
      for (const number of [2, 3, 4, 5, 6, 7]) await create(host, number);
      checkMachines(host);
      const isOfPoolOnly = point === 'warmUp' || point === 'lease' || point === 'pause';
      const waysThatWork = ['ready clone', isOfPoolOnly ? 'clone now' : 'boot'];
      for (const number of [2, 3, 4, 5, 6, 7])
        assert.ok(waysThatWork.includes(wayOf(host, number)), wayOf(host, number));
      for (let turn = 0; turn < 1000; turn++) await new Promise((resolve) => setImmediate(resolve));
      assert.ok(faults > 0 && faults <= 14, `${faults} clones were tried for six machines`);
      await destroyAll(host);
      await host.close();
      assert.deepEqual(host.left(), NOTHING);
    });
  }

  it('taps are not retried endlessly on a host that cannot make them', async () => {
    const host = await warmHost(newHost({ size: 2, baseline: 2 }));
    let faults = 0;
    host.hypervisor.newFault = () => new CommandError('ip failed');
    host.hypervisor.isFaulty = (point) => point === 'attach' && ++faults > 0;
    host.pool?.keep(shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] }));
    await until('a fault', () => faults > 0);
    for (let turn = 0; turn < 1000; turn++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(faults, 1);
    await destroyAll(host);
    await host.close();
    assert.deepEqual(host.left(), NOTHING);
  });

  it('a template whose guests fail three times in a row is removed, and not made again at once', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    host.hypervisor.isFaulty = (one, isClone) => isClone && one === 'connectGuest';
    for (const number of [2, 3]) await create(host, number);
    assert.ok(host.templates?.has(keyOf(host)));
    await create(host, 4);
    assert.equal(host.templates?.has(keyOf(host)), false);
    host.hypervisor.isFaulty = () => false;
    await create(host, 5);
    await host.close();
    assert.equal(wayOf(host, 5), 'boot');
    assert.deepEqual(readdirSync(host.paths.templates), []);
  });

  it('a temporary failure of the host does not remove the template', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    for (const error of [new CommandError('ip failed'), diskFull(new Error('forced'))]) {
      host.hypervisor.newFault = () => error;
      host.hypervisor.faults.push('attach');
      await create(host, 2).catch(() => {});
      assert.ok(host.templates?.has(keyOf(host)), error.message);
      await host.registry.destroy(idOf(2), 1);
    }
  });

  for (const point of ['launch', 'connectGuest', 'setIdentity', 'resume', 'assign', 'growDisk'] as const) {
    for (const size of [0, 1]) {
      it(`a destroy while a clone hangs at ${point} leaves nothing (pool of ${size}) (CTL-4)`, async () => {
        const host = await warmHost(newHost({ size }));
        const before = host.hypervisor.passed.filter((one) => one === point).length;
        const release = host.hypervisor.hold(point);
        const creating = create(host, 2, { rootfs_size_gb: 4 }).catch((error) => error);
        const isThere = () => host.hypervisor.passed.filter((one) => one === point).length > before;
        // Not every way includes every step.
        let isOver = false;
        void creating.then(() => {
          isOver = true;
        });
        await until(`${point} or the end`, () => isThere() || isOver);
        const destroying = host.registry.destroy(idOf(2), 2);
        // The agent does not wait for a guest that hangs, but it does wait for a step on the host.
        if (point !== 'connectGuest' && point !== 'setIdentity') release();
        await destroying;
        release();
        await creating;
        assert.ok(!host.registry.has(idOf(2)));
        assert.ok(!host.left().vms.includes(idOf(2)));
        await destroyAll(host);
        await host.close();
        assert.deepEqual(host.left(), NOTHING);
        assert.deepEqual(host.hypervisor.violations, []);
      });
    }
  }

  it('the pool may lose any of its clones at any moment', async () => {
    const host = await warmHost(newHost({ size: 2, baseline: 2 }));
    host.pool?.keep(shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] }));
    for (const point of ['launch', 'connectGuest', 'warmUp', 'lease', 'pause'] as const) {
      await filled(host);
      const clones = () =>
        [...host.hypervisor.running.values()].filter(({ runDir }) => runDir.startsWith(host.paths.runPool));
      const release = host.hypervisor.hold(point);
      for (const vm of clones()) vm.crash();
      await until('they are gone', () => host.pool?.status().ready === 0);
      host.pool?.fill();
      const seen = host.hypervisor.passed.length;
      await until(point, () => host.hypervisor.passed.slice(seen - 4).includes(point));
      for (const vm of clones()) vm.crash();
      release();
      await until('room again', () => {
        host.pool?.fill();
        return host.pool?.status().ready === 2;
      });
    }
    await create(host, 2);
    assert.equal(wayOf(host, 2), 'ready clone');
    checkMachines(host);
    await destroyAll(host);
    await host.close();
    assert.deepEqual(host.left(), NOTHING);
  });

  it('a clone that dies while a machine claims it does not become the machine', async () => {
    const host = await warmHost(newHost({ size: 1 }));
    const release = host.hypervisor.hold('setIdentity');
    const creating = create(host, 2);
    await until('taken', () => host.hypervisor.running.get(idOf(2)) !== undefined);
    const taken = vmOf(host, 2);
    taken.crash();
    release();
    assert.equal((await creating).status, 'running');
    assert.notEqual(vmOf(host, 2).vmId, taken.vmId);
    checkMachines(host);
  });
});
