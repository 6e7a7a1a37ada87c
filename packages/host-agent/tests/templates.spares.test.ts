// Tests the QEMUs that are started for a template before a create needs them, with a fault at every step. Uses a fake
// hypervisor with the real templates and machines.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { shapeOf } from '../src/machines/starter.ts';
import { bareShapeOf } from '../src/templates/shape.ts';
import {
  bareKeyOf,
  checkMachines,
  create,
  idOf,
  imageOf,
  keyOf,
  NOTHING,
  specOf,
  vmOf,
  warmHost,
  wayOf,
} from './support/clones.ts';
import { type Cloning, type FakeHost, until } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

describe('QEMUs started ahead', () => {
  const makeHost = makeHosts();
  const newHost = (cloning: Partial<Cloning>) => makeHost({ size: 0, ...cloning });
  const waitingOf = (host: FakeHost) =>
    [...host.hypervisor.running.values()].filter((vm) => vm.runDir.startsWith(host.paths.runPool));
  /** Prepares a host with a template and all its spares. */
  const stocked = async (host: FakeHost) => {
    await warmHost(host);
    await until('all spares wait', () => waitingOf(host).length === host.cloning?.spares);
    return host;
  };

  it('a create takes one, which has its address before its guest runs, and another takes its place (NET-4, CLN-1)', async () => {
    const host = await stocked(newHost({ spares: 2 }));
    const [oldest] = waitingOf(host);
    assert.deepEqual(
      waitingOf(host).map(({ vmId, isInBackground }) => [host.network.attached.get(vmId), isInBackground]),
      [
        [undefined, true],
        [undefined, true],
      ],
    );
    const from = host.hypervisor.passed.length;
    await create(host, 2);
    const steps = ['assign', 'moveTo', 'begin', 'connectGuest', 'setIdentity'];
    // The steps of the next spare, which starts at the same time, can come in between.
    const ofMachine = host.hypervisor.passed.slice(from).filter((step) => steps.includes(step));
    assert.deepEqual(ofMachine, steps);
    assert.equal(wayOf(host, 2), 'spare');
    assert.equal(vmOf(host, 2), oldest);
    assert.deepEqual(
      readFileSync(join(host.paths.machines, idOf(2), 'disk.qcow2')),
      readFileSync(join(host.paths.templates, keyOf(host), 'disk.qcow2')),
    );
    await until('another spare waits', () => waitingOf(host).length === 2);
    checkMachines(host);
    assert.deepEqual(await host.audit.look(), []);
    for (const number of [1, 2]) await host.registry.destroy(idOf(number), 9);
    await host.close();
    assert.deepEqual(host.left(), NOTHING);
  });

  it('a bare template gets none, because QEMU needs the disk of the machine when it starts', async () => {
    const host = newHost({ spares: 1 });
    await host.start();
    host.templates?.pin(bareShapeOf(shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] })));
    await until('the bare template', () => host.templates?.has(bareKeyOf(host)) === true);
    await create(host, 1);
    await until('a spare waits', () => waitingOf(host).length > 0);
    assert.deepEqual(
      waitingOf(host).map(({ templateKey }) => templateKey),
      [keyOf(host)],
    );
    await host.close();
  });

  it('more creates at once than there are spares all get a machine', async () => {
    const host = await stocked(newHost({ spares: 2 }));
    await Promise.all([2, 3, 4, 5].map((number) => create(host, number)));
    const ways = [2, 3, 4, 5].map((number) => wayOf(host, number));
    assert.ok(ways.every((way) => way === 'clone now' || way === 'spare'));
    // There are more than two if a taken spare is replaced before the last create.
    assert.ok(ways.filter((way) => way === 'spare').length >= 2);
    checkMachines(host);
    await until('all spares wait', () => waitingOf(host).length === 2);
  });

  const faults: FaultPoint[] = ['assign', 'moveTo', 'begin'];
  for (const point of faults) {
    it(`when ${point} fails for a spare, the machine gets a clone that is made now`, async () => {
      const host = await stocked(newHost({ spares: 1 }));
      const [spare] = waitingOf(host);
      host.hypervisor.faults.push(point);
      await create(host, 2);
      assert.equal(wayOf(host, 2), 'clone now');
      checkMachines(host);
      await until('another spare waits', () => waitingOf(host).length === 1);
      assert.notEqual(waitingOf(host)[0], spare);
      assert.equal(readdirSync(host.paths.pool).length, 1);
      assert.ok(host.templates?.has(keyOf(host)), 'the template is not to blame');
    });
  }

  it('a spare whose QEMU dies is removed, and machines are created without it', async () => {
    const host = await stocked(newHost({ spares: 1 }));
    waitingOf(host)[0]?.crash();
    await until('the spare is gone', () => readdirSync(host.paths.pool).length === 0);
    await create(host, 2);
    assert.equal(wayOf(host, 2), 'clone now');
    checkMachines(host);
  });

  it('a spare makes room for one of the template that was used last', async () => {
    const host = await stocked(newHost({ spares: 1 }));
    const [first] = waitingOf(host);
    await create(host, 2, { vcpus: 2 });
    await until('a second template', () => host.templates?.has(keyOf(host, { vcpus: 2 })) === true);
    assert.deepEqual(waitingOf(host), [first], 'a template alone takes nothing from another one');
    await create(host, 3, { vcpus: 2 });
    await until('a spare of the second template', () => {
      const [vm, ...others] = waitingOf(host);
      return others.length === 0 && vm?.templateKey === keyOf(host, { vcpus: 2 });
    });
    await create(host, 4, { vcpus: 2 });
    assert.equal(wayOf(host, 4), 'spare');
    checkMachines(host);
  });

  it('the spares of a template that is given up are removed, and never become a machine', async () => {
    const host = await stocked(newHost({ spares: 2 }));
    host.hypervisor.isFaulty = (point, isClone) => point === 'connectGuest' && isClone;
    for (const number of [2, 3, 4]) await create(host, number);
    host.hypervisor.isFaulty = () => false;
    assert.equal(host.templates?.has(keyOf(host)), false);
    await until('the spares are gone', () => readdirSync(host.paths.pool).length === 0 && waitingOf(host).length === 0);
    checkMachines(host);
  });

  it('an agent that was killed leaves spares, which the next agent removes before it starts its own', async () => {
    const host = await stocked(newHost({ spares: 2 }));
    const before = waitingOf(host);
    host.kill();
    await host.start();
    for (const vm of before) assert.ok(!existsSync(vm.runDir));
    await until('spares of the new agent', () => waitingOf(host).length === 2);
    assert.ok(waitingOf(host).every((vm) => !before.includes(vm)));
    await create(host, 2);
    assert.equal(wayOf(host, 2), 'spare');
    checkMachines(host);
  });

  for (const point of faults) {
    it(`an agent that is killed at ${point} of a spare loses neither address nor disk to it (CLN-1)`, async () => {
      for (const moment of ['before', 'after'] as const) {
        const host = await stocked(newHost({ spares: 1 }));
        const died = new Promise<void>((resolve) => {
          host.hypervisor.isFatal = (at, when) => {
            const isNow = at === point && when === moment && !host.isDead;
            if (isNow) {
              host.kill();
              resolve();
            }
            return isNow;
          };
        });
        void create(host, 2).catch(() => {});
        await died;
        host.hypervisor.isFatal = () => false;
        await host.start();
        await create(host, 2, { generation: 2 });
        await create(host, 3);
        checkMachines(host);
        await until('a spare waits', () => waitingOf(host).length === 1);
        for (const number of [1, 2, 3]) await host.registry.destroy(idOf(number), 9);
        await host.close();
        assert.deepEqual(host.left(), NOTHING);
      }
    });
  }
});
