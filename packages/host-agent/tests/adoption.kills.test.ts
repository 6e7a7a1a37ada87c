// Kills the agent at each step of making a template, filling the pool and starting machines, and checks what the next
// agent takes over. Uses a fake hypervisor whose VMs outlive the agent, and real files.
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { shapeOf } from '../src/machines/starter.ts';
import {
  bareKeyOf,
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
import { makeHosts } from './support/hosts-of-suite.ts';
import { type KillPoint, killPointsOf } from './support/kill-points.ts';

describe('adoption after kill -9', () => {
  const newHost = makeHosts();

  /** Runs every step of an agent's work. Returns early when the agent dies. */
  const live = async (host: FakeHost, running: Map<string, string>) => {
    const note = (number: number) => void running.set(idOf(number), vmOf(host, number).vmId);
    await host.start();
    await create(host, 1, { rootfs_size_gb: 4 });
    note(1);
    const { templates, pool } = host;
    await until('a template', () => host.isDead || templates?.has(keyOf(host)) === true);
    await until('a ready clone', () => host.isDead || pool?.status().ready === 1);
    if (host.isDead) return;
    for (const number of [2, 3]) {
      await create(host, number, { rootfs_size_gb: 4 });
      note(number);
    }
    running.delete(idOf(2));
    running.delete(idOf(3));
    await host.registry.ensure(idOf(2), { generation: 2, desired: 'stopped', spec: specOf(2) });
    await host.registry.destroy(idOf(3), 2);
  };

  const passes = async (): Promise<KillPoint[]> => {
    const host = newHost({ size: 1 });
    await live(host, new Map());
    const passed = [...host.hypervisor.passed];
    await host.close();
    return killPointsOf(passed);
  };

  it('whichever step was its last, machines that ran run on in their VM, the others start, and nothing is left (CTL-2, CTL-3)', async () => {
    const all = await passes();
    assert.ok(new Set(all.map(({ point }) => point)).size >= 13);
    for (const { point, nth, when } of all) {
      const what = `killed ${when} ${point} ${nth}`;
      const host = newHost({ size: 1 });
      const running = new Map<string, string>();
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
      const life = live(host, running).catch((error) => {
        if (!host.isDead) throw error;
      });
      await Promise.race([life, death]);
      await landed();
      host.hypervisor.isFatal = () => false;
      const template = host.templates?.has(keyOf(host));

      await host.start();
      // A guest may have powered off while no agent was watching. Wait until the agent has handled that.
      await until('machines are what they say', () =>
        host.registry.reports().every((one) => one.status !== 'running' || host.hypervisor.running.has(one.machine_id)),
      );
      for (const [id, vmId] of running) assert.equal(host.hypervisor.running.get(id)?.vmId, vmId, what);
      checkMachines(host);
      assert.deepEqual(await host.audit.look(), [], what);
      if (template) await until('the template is there again', () => host.templates?.has(keyOf(host)) === true);
      for (const number of [1, 2, 3]) await create(host, number, { generation: 3, rootfs_size_gb: 4 });
      for (const [id, vmId] of running) assert.equal(host.hypervisor.running.get(id)?.vmId, vmId, what);
      checkMachines(host);
      assert.ok(
        host.registry.reports().every(({ status }) => status === 'running'),
        what,
      );
      await assert.rejects(create(host, 1, { generation: 2 }), { code: 'conflict' });

      for (const number of [1, 2, 3]) await host.registry.destroy(idOf(number), 4);
      await host.close();
      assert.deepEqual(host.left(), NOTHING, what);
      assert.deepEqual(readdirSync(host.paths.machines), [], what);
      assert.ok(
        readdirSync(host.paths.templates).every((key) => [keyOf(host), bareKeyOf(host)].includes(key)),
        what,
      );
    }
  });

  it('ready clones stay ready in the same VMs and serve the next machines', async () => {
    const host = await warmHost(newHost({ size: 2, baseline: 2 }));
    await Promise.all([create(host, 2), create(host, 3)]);
    await filled(host);
    const clones = () =>
      [...host.hypervisor.running.values()]
        .filter(({ runDir }) => runDir.startsWith(host.paths.runPool))
        .map(({ vmId }) => vmId)
        .sort();
    const before = clones();
    assert.equal(before.length, 2);
    await host.start();
    await until('the template is there again', () => host.templates?.has(keyOf(host)) === true);
    assert.deepEqual(clones(), before);
    assert.equal(host.pool?.status().ready, 2);
    for (const vm of host.hypervisor.running.values()) assert.equal(vm.isHeld, before.includes(vm.vmId));
    host.pool?.keep(shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] }));
    await create(host, 4);
    assert.equal(wayOf(host, 4), 'ready clone');
    assert.ok(before.includes(vmOf(host, 4).vmId));
    checkMachines(host);
  });

  for (const [what, spoil] of [
    ['runs', (host: FakeHost) => poolVm(host).resume()],
    [
      'comes from a template that is gone',
      (host: FakeHost) => {
        host.hypervisor.fingerprint = 'an update of QEMU';
      },
    ],
    ['is not wanted any more', (host: FakeHost) => void Object.assign(host.cloning ?? {}, { size: 0 })],
  ] as const) {
    it(`the next agent ends a clone that ${what} and removes its files`, async () => {
      const host = await warmHost(newHost({ size: 1 }));
      const { vmId } = poolVm(host);
      host.kill();
      await spoil(host);
      await host.start();
      await until(
        'the templates were looked at',
        () => host.warnings.length > 0 || host.templates?.has(keyOf(host)) === true,
      );
      host.pool?.fill();
      if (what !== 'comes from a template that is gone') {
        assert.ok(![...host.hypervisor.running.values()].some((vm) => vm.vmId === vmId));
        assert.deepEqual(readdirSync(host.paths.pool), []);
      }
      await host.close();
      assert.deepEqual(
        [host.left().vms, readdirSync(host.paths.pool), readdirSync(host.paths.runPool)],
        [[idOf(1)], [], []],
      );
    });
  }

  it('files of clones and templates without a VM are removed, machines and finished templates are kept', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    const disk = join(host.paths.machines, idOf(1), 'disk.qcow2');
    host.kill();
    for (const name of ['aaaaaaaaaaaa.qcow2', 'bbbbbbbbbbbb.qcow2.partial'])
      copyFileSync(disk, join(host.paths.pool, name));
    for (const dir of [host.paths.runPool, host.paths.runTemplates, host.paths.templates]) {
      const name = dir === host.paths.templates ? '.making-cccccccccccc' : 'cccccccccccc';
      mkdirSync(join(dir, name), { recursive: true });
      writeFileSync(join(dir, name, 'qemu.log'), 'half a line');
    }
    mkdirSync(join(host.paths.templates, 'without-manifest'));
    await host.start();
    assert.deepEqual(host.left(), {
      vms: [idOf(1)],
      attached: [vmOf(host, 1).vmId],
      files: [join(host.paths.runMachines, idOf(1))],
    });
    assert.deepEqual(readdirSync(host.paths.templates), [keyOf(host)]);
    checkMachines(host);
  });
});

function poolVm(host: FakeHost) {
  const vm = [...host.hypervisor.running.values()].find(({ runDir }) => runDir.startsWith(host.paths.runPool));
  return vm ?? assert.fail('the pool has no clone');
}

/**
 * Waits until the file operations that the dead agent had started are finished, because after a real kill the kernel
 * would finish them too.
 */
async function landed(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await stat('/');
}
