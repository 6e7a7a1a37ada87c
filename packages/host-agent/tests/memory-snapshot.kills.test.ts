// Kills the agent at each step of taking a memory snapshot and of making machines from it, and checks the state after
// the next agent has started. Uses a fake hypervisor whose VMs outlive the agent, and real files.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { checkMachines, idOf, NOTHING, specOf, vmOf } from './support/clones.ts';
import { FakeHost, until } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';
import { type KillPoint, killPointsOf } from './support/kill-points.ts';

const SNAPSHOT = '019a0000-0000-7000-8000-0000000001aa';
const OTHER = '019a0000-0000-7000-8000-0000000001bb';

describe('memory snapshots', () => {
  const used: FakeHost[] = [];
  after(async () => {
    // A destroy schedules a garbage collection. Let it run before the folder is removed.
    await new Promise((resolve) => setImmediate(resolve));
    for (const host of used) host.remove();
  });
  const newHost = () => {
    const host = new FakeHost();
    used.push(host);
    return host;
  };
  const ensure = (host: FakeHost, number: number, generation: number, more: object = {}) =>
    host.registry.ensure(idOf(number), { generation, desired: 'running', spec: { ...specOf(number), ...more } });
  const take = (host: FakeHost, generation: number, id = SNAPSHOT, memory = true) =>
    host.registry.takeSnapshot(idOf(1), id, { generation, memory });
  const startOf = (host: FakeHost, number: number) => {
    const { vmId } = vmOf(host, number);
    return host.hypervisor.launched.find((one) => one.vmId === vmId)?.start.kind;
  };
  const filesOf = (host: FakeHost, id = SNAPSHOT) => {
    const dir = join(host.paths.snapshots, id);
    return existsSync(dir) ? readdirSync(dir).sort() : [];
  };
  /** Makes a machine and a snapshot of its memory. */
  const withSnapshot = async () => {
    const host = newHost();
    await host.start();
    await ensure(host, 1, 1);
    await take(host, 1);
    return host;
  };

  /** Runs every step of an agent's work. Returns early when the agent dies. */
  const live = async (host: FakeHost) => {
    await host.start();
    await ensure(host, 1, 1);
    await take(host, 1);
    await ensure(host, 2, 1, { snapshot_id: SNAPSHOT, rootfs_size_gb: 2 });
    await take(host, 1, OTHER);
  };

  const passes = async (): Promise<KillPoint[]> => {
    const host = newHost();
    await live(host);
    return killPointsOf(host.hypervisor.passed);
  };

  it('whichever step was the last of an agent, a snapshot is whole or not there, its machine runs on, and all of it can be done again (CTL-2)', async () => {
    const all = await passes();
    for (const point of [
      'prepareMemory',
      'catchUpMemory',
      'saveMemory',
      'completeMemory',
      'switchDisk',
      'holdProcesses',
      'growDisk',
    ] as const)
      assert.ok(
        all.some((one) => one.point === point),
        point,
      );
    for (const { point, nth, when } of all) {
      const what = `killed ${when} ${point} ${nth}`;
      const host = newHost();
      let count = 0;
      let die = () => {};
      const death = new Promise<void>((resolve) => {
        die = resolve;
      });
      host.hypervisor.isFatal = (one, at) => {
        if (host.isDead || one !== point || at !== when || ++count !== nth) return false;
        host.kill();
        die();
        return true;
      };
      const life = live(host).catch((error) => {
        if (!host.isDead) throw error;
      });
      await Promise.race([life, death]);
      await landed();
      host.hypervisor.isFatal = () => false;
      const before = host.hypervisor.running.get(idOf(1))?.vmId;
      const ran = host.registry.reports().some((one) => one.machine_id === idOf(1) && one.status === 'running');

      await host.start();
      if (ran) assert.equal(vmOf(host, 1).vmId, before, what);
      for (const vm of host.hypervisor.running.values()) {
        assert.equal(vm.isHeld, false, what);
        await until(`${what}: its guest goes on`, () => !vm.isFrozen && !vm.areProcessesHeld);
      }
      for (const { snapshot_id } of host.snapshots.list())
        assert.deepEqual(filesOf(host, snapshot_id), ['memory', 'snapshot.json', 'state'], what);
      assert.deepEqual(
        host.snapshots.list().map((one) => one.snapshot_id),
        host.snapshots.ids(),
        what,
      );
      host.garbage.collect();
      assert.deepEqual(await host.audit.look(), [], what);

      await ensure(host, 1, 2);
      for (const id of [SNAPSHOT, OTHER]) assert.equal((await take(host, 2, id)).kind, 'memory', what);
      await ensure(host, 2, 2, { snapshot_id: SNAPSHOT, rootfs_size_gb: 2 });
      assert.equal(startOf(host, 2), 'restore', what);
      checkMachines(host);
      assert.deepEqual(host.hypervisor.violations, [], what);

      for (const number of [1, 2]) await host.registry.destroy(idOf(number), 3);
      for (const id of [SNAPSHOT, OTHER]) host.snapshots.remove(id);
      host.garbage.collect();
      await host.close();
      assert.deepEqual(host.left(), NOTHING, what);
      for (const dir of [host.paths.layers, host.paths.snapshots, host.paths.machines])
        assert.deepEqual(readdirSync(dir), [], what);
    }
  });

  it('a step that fails leaves no snapshot and a machine that runs; the next try succeeds (CTL-2)', async () => {
    const steps: FaultPoint[] = [
      'stageDisk',
      'freeze',
      'thaw',
      'holdProcesses',
      'releaseProcesses',
      'prepareMemory',
      'catchUpMemory',
      'saveMemory',
      'switchDisk',
      'completeMemory',
    ];
    for (const step of steps) {
      const host = newHost();
      await host.start();
      await ensure(host, 1, 1);
      host.hypervisor.isFaulty = (point) => point === step;
      await assert.rejects(take(host, 1), ServiceError, step);
      host.hypervisor.isFaulty = () => false;
      const vm = vmOf(host, 1);
      assert.deepEqual(
        [host.snapshots.ids(), vm.isHeld, vm.savesUnderWay, host.registry.reports()[0]?.status],
        [[], false, 0, 'running'],
        step,
      );
      assert.equal(vm.areProcessesHeld, step === 'releaseProcesses', step);
      assert.equal(vm.isFrozen, step === 'thaw', step);
      assert.equal((await take(host, 1)).kind, 'memory', step);
      await ensure(host, 2, 1, { snapshot_id: SNAPSHOT });
      assert.equal(startOf(host, 2), 'restore', step);
      checkMachines(host);
    }
  });

  it('a full disk is reported as such and leaves nothing', async () => {
    const host = newHost();
    await host.start();
    await ensure(host, 1, 1);
    host.hypervisor.newFault = () => Object.assign(new Error('no space'), { code: 'ENOSPC' });
    for (const step of ['prepareMemory', 'saveMemory', 'completeMemory'] as const) {
      host.hypervisor.faults.push(step);
      await assert.rejects(take(host, 1), { code: 'fleet_capacity' });
      assert.deepEqual([host.snapshots.ids(), vmOf(host, 1).isHeld], [[], false]);
    }
  });

  it('is refused for a machine that does not run or has volumes', async () => {
    const host = newHost();
    await host.start();
    const volume = '019a0000-0000-7000-8000-0000000002aa';
    await host.registry.ensure(idOf(1), { generation: 1, desired: 'stopped', spec: specOf(1) });
    await assert.rejects(take(host, 1), { code: 'conflict', message: /only a running machine/ });
    await host.dataVolumes.ensure(volume, 5);
    const volumes = [{ volume_id: volume, mount_path: '/data' }];
    await host.registry.ensure(idOf(1), { generation: 2, desired: 'running', spec: specOf(1), volumes });
    await assert.rejects(take(host, 2), { code: 'conflict', message: /detach them first/ });
    await host.registry.ensure(idOf(1), { generation: 3, desired: 'running', spec: specOf(1), volumes: [] });
    assert.equal((await take(host, 3)).kind, 'memory');
  });

  it('a repeated call returns the existing snapshot, and another machine cannot use its id', async () => {
    const host = await withSnapshot();
    const layers = readdirSync(host.paths.layers);
    assert.equal((await take(host, 1)).snapshot_id, SNAPSHOT);
    assert.deepEqual(readdirSync(host.paths.layers), layers);
    await ensure(host, 3, 1);
    await assert.rejects(host.registry.takeSnapshot(idOf(3), SNAPSHOT, { generation: 1, memory: true }), {
      code: 'conflict',
    });
  });

  it('its machines have the requested identity and size; the first start resumes, later starts boot the disk', async () => {
    const host = await withSnapshot();
    await ensure(host, 2, 1, { snapshot_id: SNAPSHOT, rootfs_size_gb: 3 });
    const vm = vmOf(host, 2);
    assert.deepEqual([vm.identity?.machineId, vm.diskBytes], [idOf(2), 3 * 2 ** 30]);
    await host.registry.ensure(idOf(2), { generation: 2, desired: 'stopped', spec: specOf(2) });
    host.snapshots.remove(SNAPSHOT);
    await ensure(host, 2, 3, { snapshot_id: SNAPSHOT, rootfs_size_gb: 3 });
    assert.equal(startOf(host, 2), 'boot');
    checkMachines(host);
  });

  it("a restore returns to the snapshot's disk, not to its memory", async () => {
    const host = await withSnapshot();
    await host.registry.ensure(idOf(1), {
      generation: 2,
      desired: 'running',
      spec: specOf(1),
      restore_snapshot_id: SNAPSHOT,
    });
    assert.equal(startOf(host, 1), 'boot');
    assert.equal(host.layers.list().length, 1);
    checkMachines(host);
  });

  it('a machine that never resumed from it can be restored to its disk', async () => {
    const host = await withSnapshot();
    host.hypervisor.qemu = '10.0';
    await assert.rejects(ensure(host, 2, 1, { snapshot_id: SNAPSHOT }), { code: 'conflict' });
    await host.registry.ensure(idOf(2), {
      generation: 2,
      desired: 'running',
      spec: specOf(2),
      restore_snapshot_id: SNAPSHOT,
    });
    assert.equal(startOf(host, 2), 'boot');
    checkMachines(host);
  });

  it('a machine that cannot resume is an error, without a fallback to a cold boot', async () => {
    for (const step of ['launch', 'connectGuest', 'setIdentity', 'growDisk'] as const) {
      const host = await withSnapshot();
      host.hypervisor.isFaulty = (point, isClone) => point === step && (isClone || step === 'growDisk');
      await assert.rejects(ensure(host, 2, 1, { snapshot_id: SNAPSHOT, rootfs_size_gb: 2 }), ServiceError, step);
      host.hypervisor.isFaulty = () => false;
      assert.ok(!host.hypervisor.running.has(idOf(2)), step);
      assert.deepEqual(readdirSync(join(host.paths.machines, idOf(2))).sort(), ['jobs', 'machine.json'], step);
      await ensure(host, 2, 2, { snapshot_id: SNAPSHOT, rootfs_size_gb: 2 });
      assert.equal(startOf(host, 2), 'restore', step);
      checkMachines(host);
    }
  });

  it('a machine whose processes ran before its identity is thrown away, and the snapshot is named (CLN-1, CLN-2)', async () => {
    const host = await withSnapshot();
    host.hypervisor.staysHeld = false;
    const message = new RegExp(`snapshot ${SNAPSHOT} .* went on before the machine had an identity`);
    await assert.rejects(ensure(host, 2, 1, { snapshot_id: SNAPSHOT }), { code: 'conflict', message });
    assert.deepEqual([...host.hypervisor.running.keys()], [idOf(1)]);
    assert.deepEqual(readdirSync(join(host.paths.machines, idOf(2))).sort(), ['jobs', 'machine.json']);
    host.hypervisor.staysHeld = true;
    await ensure(host, 2, 2, { snapshot_id: SNAPSHOT });
    assert.deepEqual([startOf(host, 2), host.hypervisor.violations], ['restore', []]);
  });

  it('a snapshot deleted while it is taken does not come back without its files', async () => {
    const host = await withSnapshot();
    const { add } = host.snapshots;
    host.snapshots.add = (id, record) => {
      host.snapshots.remove(id);
      return add.call(host.snapshots, id, record);
    };
    await assert.rejects(take(host, 1, OTHER), { code: 'conflict', message: /deleted while it was taken/ });
    host.snapshots.add = add;
    assert.deepEqual(host.snapshots.ids(), [SNAPSHOT]);
    assert.equal((await take(host, 1, OTHER)).kind, 'memory');
  });

  it('a snapshot that cannot be recorded leaves no files, and the next attempt succeeds', async () => {
    const host = await withSnapshot();
    const { add } = host.snapshots;
    host.snapshots.add = (id, record) => {
      mkdirSync(join(host.paths.snapshots, id, 'snapshot.json.partial'));
      return add.call(host.snapshots, id, record);
    };
    await assert.rejects(take(host, 1, OTHER));
    host.snapshots.add = add;
    assert.deepEqual(host.snapshots.ids(), [SNAPSHOT]);
    assert.equal((await take(host, 1, OTHER)).kind, 'memory');
  });

  for (const [what, spoil, message] of [
    [
      'was taken by another QEMU',
      (host: FakeHost) => {
        host.hypervisor.qemu = '10.0';
      },
      /it needs QEMU 7\.2, and this host has QEMU 10\.0 .*; a restore/,
    ],
    [
      'has memory that was changed',
      (host: FakeHost) => writeFileSync(join(host.paths.snapshots, SNAPSHOT, 'memory'), 'x', { flag: 'r+' }),
      /memory is not what was saved/,
    ],
    [
      'has devices that were changed',
      (host: FakeHost) => writeFileSync(join(host.paths.snapshots, SNAPSHOT, 'state'), 'x', { flag: 'r+' }),
      /state is not what was saved/,
    ],
    [
      'has lost its memory',
      (host: FakeHost) => rmSync(join(host.paths.snapshots, SNAPSHOT, 'memory')),
      /not on this host, or not whole/,
    ],
    [
      'has memory that was cut',
      (host: FakeHost) => truncateSync(join(host.paths.snapshots, SNAPSHOT, 'memory'), 4096),
      /not on this host, or not whole/,
    ],
  ] as const) {
    it(`one that ${what} cannot be resumed: a conflict that says so (CLN-5)`, async () => {
      const host = await withSnapshot();
      spoil(host);
      await assert.rejects(ensure(host, 2, 1, { snapshot_id: SNAPSHOT }), { code: 'conflict', message });
      assert.ok(!host.hypervisor.running.has(idOf(2)));
    });
  }

  it('one of a machine that an update of QEMU found running needs the old QEMU, which the host may have kept (CLN-5)', async () => {
    const host = await withSnapshot();
    host.hypervisor.qemu = '10.0';
    await take(host, 1, OTHER);
    const message = /it needs QEMU 7\.2, and this host has QEMU 10\.0/;
    await assert.rejects(ensure(host, 2, 1, { snapshot_id: OTHER }), { code: 'conflict', message });
    host.hypervisor.oldQemus = ['8.0', '7.2'];
    await ensure(host, 2, 2, { snapshot_id: OTHER });
    const { start } = host.hypervisor.launched.at(-1) ?? {};
    assert.equal(start?.kind === 'restore' && start.qemuPath, '/qemu-7.2');
    checkMachines(host);
  });

  it('a machine with another size than the original is refused', async () => {
    const host = await withSnapshot();
    await assert.rejects(ensure(host, 2, 1, { snapshot_id: SNAPSHOT, memory_mb: 16 }), {
      code: 'conflict',
      message: /has 1 vCPUs and 8 MB/,
    });
  });

  it('a snapshot with missing files is no longer listed, and the audit says why', async () => {
    const host = await withSnapshot();
    rmSync(join(host.paths.snapshots, SNAPSHOT, 'state'));
    assert.deepEqual(host.snapshots.list(), []);
    assert.match((await host.audit.look())[0]?.detail ?? '', /state of its devices is missing/);
  });

  it('a machine destroyed while it resumes leaves nothing', async () => {
    const host = await withSnapshot();
    const release = host.hypervisor.hold('setIdentity');
    const going = ensure(host, 2, 1, { snapshot_id: SNAPSHOT });
    going.catch(() => {});
    await until('it has a VM', () => host.hypervisor.running.has(idOf(2)));
    const destroyed = host.registry.destroy(idOf(2), 2);
    release();
    await assert.rejects(going);
    await destroyed;
    assert.ok(!existsSync(join(host.paths.machines, idOf(2))));
    assert.deepEqual([...host.hypervisor.running.keys()], [idOf(1)]);
  });
});

/**
 * Waits until the file operations that the dead agent had started are finished, because after a real kill the kernel
 * would finish them too.
 */
async function landed(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await stat('/');
}
