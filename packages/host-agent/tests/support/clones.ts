// Creates small machines on a fake host, and checks what must hold for all of them after any sequence of events.
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { shapeOf } from '../../src/machines/starter.ts';
import { bareShapeOf } from '../../src/templates/shape.ts';
import { type FakeHost, SPEC, until } from './fake-host.ts';

export const SMALL = { ...SPEC, memory_mb: 8 };

export function idOf(number: number): string {
  return `019a0000-0000-7000-8000-${String(number).padStart(12, '0')}`;
}

export function specOf(number: number, more: Partial<typeof SPEC> = {}) {
  return { ...SMALL, private_ip: `10.200.0.${number + 10}`, ...more };
}

/** Creates the machine and waits until it runs. */
export function create(host: FakeHost, number: number, more: Partial<typeof SPEC> & { generation?: number } = {}) {
  const { generation = 1, ...spec } = more;
  return host.registry.ensure(idOf(number), { generation, desired: 'running', spec: specOf(number, spec) });
}

export function vmOf(host: FakeHost, number: number) {
  return host.hypervisor.running.get(idOf(number)) ?? assert.fail(`machine ${number} has no VM`);
}

/**
 * Returns how the machine's VM was started: by a cold boot, as a clone made on demand, in a spare QEMU, or as a clone
 * from the pool.
 */
export function wayOf(host: FakeHost, number: number): 'boot' | 'clone now' | 'spare' | 'ready clone' {
  const { vmId } = vmOf(host, number);
  const spec = host.hypervisor.launched.find((one) => one.vmId === vmId) ?? assert.fail('never launched');
  if (spec.start.kind === 'boot') return 'boot';
  if (spec.start.waits) return 'spare';
  return spec.runDir.startsWith(host.paths.runPool) ? 'ready clone' : 'clone now';
}

export function keyOf(host: FakeHost, more: Partial<typeof SPEC> = {}): string {
  const shape = shapeOf({ spec: specOf(0, more), image: imageOf(host), layerPaths: [] });
  return host.templates?.keyOf(shape) ?? assert.fail('no templates');
}

/** Returns the key of the bare template for the machines of {@link create}. */
export function bareKeyOf(host: FakeHost): string {
  const shape = shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] });
  return host.templates?.keyOf(bareShapeOf(shape)) ?? assert.fail('no templates');
}

export function imageOf(host: FakeHost) {
  return { kernelPath: '/kernel', initramfsPath: '/initramfs', rootfsPath: join(host.dir, 'rootfs.img') };
}

/** Waits until the pool is full. */
export async function filled(host: FakeHost): Promise<void> {
  await until('the pool is full', () => {
    const { ready, target } = host.pool?.status() ?? { ready: 0, target: 0 };
    return ready === target && target > 0;
  });
}

/** Prepares a host with a template and a full pool. */
export async function warmHost(host: FakeHost): Promise<FakeHost> {
  await host.start();
  await create(host, 1);
  await until('a template', () => host.templates?.has(keyOf(host)) === true);
  if (host.cloning?.size) await filled(host);
  return host;
}

/** Checks that every running machine has its own VM, disk and identity. */
export function checkMachines(host: FakeHost): void {
  assert.deepEqual(host.hypervisor.violations, []);
  const systemIds = new Set<string>();
  for (const { machine_id: id, status } of host.registry.reports()) {
    if (status !== 'running') continue;
    const vm = host.hypervisor.running.get(id) ?? assert.fail(`${id} runs without a VM`);
    assert.equal(vm.identity?.machineId, id);
    const systemId = vm.identity.systemId ?? id;
    assert.ok(!systemIds.has(systemId), `two machines have the system id ${systemId}`);
    systemIds.add(systemId);
    assert.equal(vm.isHeld, false);
    assert.equal(vm.isInBackground, false);
    assert.equal(`${host.network.attached.get(vm.vmId)}/16`, vm.identity?.address);
    assert.ok(existsSync(join(host.paths.machines, id, 'disk.qcow2')));
    const names = readdirSync(join(host.paths.machines, id));
    assert.deepEqual(
      names.filter((name) => name.endsWith('.partial')),
      [],
    );
  }
}

export const NOTHING = { vms: [], attached: [], files: [] };
