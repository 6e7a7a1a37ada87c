// Tests the host's audit: it finds and removes each kind of leftover, and reports nothing while machines come and go.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { newVmId } from '../src/hypervisor/driver.ts';
import { isAlive, processInfo } from '../src/hypervisor/process.ts';
import { checkMachines, create, filled, idOf, keyOf, NOTHING, vmOf, warmHost } from './support/clones.ts';
import { FakeHost, until } from './support/fake-host.ts';

describe('host audit', () => {
  let host: FakeHost;
  before(async () => {
    host = new FakeHost({ size: 1 });
    Object.defineProperty(host.network, 'kind', { value: 'bridge', configurable: true });
    await warmHost(host);
  });
  after(async () => {
    await host.close();
    host.remove();
  });

  const stray = newVmId();
  const file = (path: string) => {
    mkdirSync(path.slice(0, path.lastIndexOf('/')), { recursive: true });
    writeFileSync(path, 'left');
  };
  const planted: [string, string, (host: FakeHost) => void][] = [
    ['a tap and rules', 'tap', ({ network }) => void network.attached.set(stray, undefined)],
    ['a clone disk', 'file', ({ paths }) => file(join(paths.pool, `${stray}.qcow2`))],
    ['half a clone disk', 'file', ({ paths }) => file(join(paths.pool, `${stray}.qcow2.partial`))],
    ['a run directory of a machine', 'file', ({ paths }) => file(join(paths.runMachines, idOf(99), 'qemu.log'))],
    ['a run directory of a clone', 'file', ({ paths }) => file(join(paths.runPool, stray, 'qemu.log'))],
    ['a run directory of a template', 'file', ({ paths }) => file(join(paths.runTemplates, stray, 'qemu.log'))],
    ['half a template', 'file', ({ paths }) => file(join(paths.templates, `.making-${stray}`, 'memory'))],
  ];
  for (const [what, kind, plant] of planted) {
    it(`${what} that no VM has is found and removed, and nothing else (CTL-3)`, async () => {
      const before = host.left();
      assert.deepEqual(await host.audit.look(), []);
      plant(host);
      const [finding, ...others] = await host.audit.look();
      assert.deepEqual([finding?.kind, finding?.fixable, others], [kind, true, []]);
      const { findings, fixed } = await host.audit.fix();
      assert.deepEqual([findings, fixed.map(({ subject }) => subject)], [[], [finding?.subject]]);
      assert.deepEqual(host.left(), before);
      assert.ok(host.templates?.has(keyOf(host)));
      checkMachines(host);
    });
  }

  it('a control group and a record of no VM are found and released (CTL-3)', async () => {
    const { inventory, release } = host.hypervisor;
    const strays = { cgroups: new Set(['aaaaaaaaaaaa']), records: new Set(['bbbbbbbbbbbb']) };
    host.hypervisor.inventory = function () {
      const { processes, cgroups, records } = inventory.call(this);
      return { processes, cgroups: [...cgroups, ...strays.cgroups], records: [...records, ...strays.records] };
    };
    host.hypervisor.release = async (vmId = '') => {
      strays.cgroups.delete(vmId);
      strays.records.delete(vmId);
    };
    assert.deepEqual((await host.audit.look()).map(({ kind }) => kind).sort(), ['cgroup', 'file']);
    const { findings, fixed } = await host.audit.fix();
    Object.assign(host.hypervisor, { inventory, release });
    assert.deepEqual([findings, fixed.length], [[], 2]);
    checkMachines(host);
  });

  it('a stray process ends, and one that has its pid by now does not (CTL-3)', async () => {
    const { inventory } = host.hypervisor;
    const child = spawn('/bin/sleep', ['1000'], { stdio: 'ignore' });
    const exited = once(child, 'exit');
    const info = processInfo(child.pid ?? 0) ?? assert.fail('it does not run');
    let found = { ...info, startTicks: '1' };
    host.hypervisor.inventory = function () {
      const all = inventory.call(this);
      return { ...all, processes: isAlive(info) ? [...all.processes, found] : all.processes };
    };
    try {
      assert.deepEqual((await host.audit.fix()).fixed, []);
      assert.ok(isAlive(info), 'the pid alone was believed');
      found = info;
      assert.deepEqual(
        (await host.audit.fix()).fixed.map(({ subject }) => subject),
        [`QEMU process ${info.pid}`],
      );
    } finally {
      Object.assign(host.hypervisor, { inventory });
      child.kill('SIGKILL');
    }
    await exited;
  });

  it('a VM that runs without its tap is found, and one that is being ended is not (NET-4)', async () => {
    const { vmId } = vmOf(host, 1);
    const address = host.network.attached.get(vmId);
    host.network.attached.delete(vmId);
    const [finding, ...others] = (await host.audit.fix()).findings;
    assert.deepEqual([finding?.kind, finding?.fixable, others], ['rules', false, []]);
    host.network.attached.set(vmId, address);
    assert.deepEqual(await host.audit.look(), []);

    await create(host, 5);
    const release = host.hypervisor.hold('end');
    const ended = vmOf(host, 5).vmId;
    const destroying = host.registry.destroy(idOf(5), 2);
    await until('it is being ended', () => !host.vms.running().some((vm) => vm.vmId === ended));
    host.network.attached.delete(ended);
    assert.deepEqual(await host.audit.look(), []);
    release();
    await destroying;
  });

  it('a finding that cannot be mended is reported again and does not block the others', async () => {
    host.network.attached.set('cccccccccccc', undefined);
    host.hypervisor.faults.push('detach');
    file(join(host.paths.pool, 'dddddddddddd.qcow2'));
    const first = await host.audit.fix();
    assert.deepEqual(
      [first.findings.map(({ kind }) => kind), first.fixed.map(({ kind }) => kind)],
      [['tap'], ['file']],
    );
    assert.deepEqual((await host.audit.fix()).findings, []);
  });

  it("a machine's folder without a readable record is reported and not removed", async () => {
    const folder = join(host.paths.machines, idOf(98));
    file(join(folder, 'disk.qcow2'));
    const { findings } = await host.audit.fix();
    assert.deepEqual(
      findings.map(({ subject, fixable }) => [subject, fixable]),
      [[folder, false]],
    );
    assert.ok(existsSync(join(folder, 'disk.qcow2')));
    await host.registry.destroy(idOf(98), 1);
    assert.deepEqual(await host.audit.look(), []);
  });

  it('nothing is reported at any step of making a template', async () => {
    const one = new FakeHost({ size: 0 });
    await one.start();
    for (const point of ['attach', 'launch', 'connectGuest', 'warmUp', 'saveDevices', 'end', 'detach'] as const) {
      const release = one.hypervisor.hold(point);
      const seen = one.hypervisor.passed.filter((passed) => passed === point).length;
      one.templates?.pin({
        image: imageFor(one),
        layerPaths: [],
        vcpus: seen + 2 + point.length,
        memoryMb: 8,
        diskGb: 1,
      });
      await until(point, () => one.hypervisor.passed.filter((passed) => passed === point).length > seen);
      assert.deepEqual((await one.audit.fix()).fixed, [], point);
      release();
      const made = readdirSync(one.paths.templates).filter((name) => !name.startsWith('.')).length;
      await until('made', () => readdirSync(one.paths.templates).filter((name) => !name.startsWith('.')).length > made);
    }
    assert.deepEqual(one.warnings, []);
    await one.close();
    one.remove();
  });

  it('nothing is reported or removed while machines come and go', async () => {
    let isOver = false;
    const looks = (async () => {
      let count = 0;
      for (; !isOver; count++) {
        const { fixed, findings } = await host.audit.fix();
        assert.deepEqual([findings, fixed], [[], []]);
        await new Promise((resolve) => setImmediate(resolve));
      }
      return count;
    })();
    for (let round = 0; round < 8; round++) {
      await Promise.all([2, 3, 4].map((number) => create(host, number, { generation: 2 * round + 1 })));
      checkMachines(host);
      vmOf(host, 2).crash();
      await Promise.all([2, 3, 4].map((number) => host.registry.destroy(idOf(number), 2 * round + 2)));
    }
    isOver = true;
    assert.ok((await looks) > 8);
    await filled(host);
    await host.registry.destroy(idOf(1), 9);
    await host.close();
    assert.deepEqual(host.left(), NOTHING);
  });
});

function imageFor(host: FakeHost) {
  return { kernelPath: '/kernel', initramfsPath: '/initramfs', rootfsPath: join(host.dir, 'rootfs.img') };
}
