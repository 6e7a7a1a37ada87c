// A clone in the pool has an address and names before any machine asks for it. The machine that takes the clone takes
// them over, and no two machines ever have the same ones.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { type MachineRecord, readMachineRecord } from '../src/machines/record.ts';
import { checkMachines, filled, idOf, keyOf, SMALL, vmOf, wayOf } from './support/clones.ts';
import { FakeHost, until } from './support/fake-host.ts';
import type { FakeVm } from './support/fake-vm.ts';

const { private_ip: _, ...UNPLACED } = SMALL;

describe('addresses of clones in the pool', () => {
  const hosts: FakeHost[] = [];
  after(() => {
    for (const host of hosts) host.remove();
  });

  const ensure = (host: FakeHost, number: number, named?: string, generation = 1) =>
    host.registry.ensure(idOf(number), {
      generation,
      desired: 'running',
      spec: { ...UNPLACED, ...(named === undefined ? {} : { private_ip: named }) },
    });

  /** A host with a template and a full pool. Machine 1 runs. */
  async function newHost(size = 2): Promise<FakeHost> {
    const host = new FakeHost({ size });
    hosts.push(host);
    await host.start();
    await ensure(host, 1);
    await until('a template', () => host.templates?.has(keyOf(host)) === true);
    await filled(host);
    return host;
  }

  const waiting = (host: FakeHost): FakeVm[] =>
    [...host.hypervisor.running.values()].filter((vm) => vm.runDir.startsWith(host.paths.runPool));
  function recordOf(host: FakeHost, number: number): MachineRecord {
    const record = readMachineRecord(join(host.paths.machines, idOf(number)));
    assert.ok(record);
    return record;
  }
  const assigns = (host: FakeHost) => host.hypervisor.passed.filter((point) => point === 'assign').length;
  const addressesOf = (host: FakeHost) => host.registry.reports().map(({ private_ip }) => private_ip);

  it('become those of the machines that take them: network and guest had them before', async () => {
    const host = await newHost();
    const leased = waiting(host).map((vm) => host.network.attached.get(vm.vmId));
    assert.ok(leased.length > 0 && !leased.includes(undefined), String(leased));
    const assigned = assigns(host);
    const { private_ip } = await ensure(host, 2);
    assert.equal(wayOf(host, 2), 'ready clone');
    assert.ok(leased.includes(private_ip ?? undefined), `${private_ip} of ${leased}`);
    assert.equal(assigns(host), assigned, 'the network was not changed for the machine');
    const { lease, identity } = vmOf(host, 2);
    assert.equal(lease?.address, `${private_ip}/16`);
    assert.deepEqual([identity?.address, identity?.mac], [lease?.address, lease?.mac]);
    checkMachines(host);
  });

  it('come with names, which become those of the machine', async () => {
    const host = await newHost();
    await ensure(host, 2);
    await filled(host);
    await ensure(host, 3);
    const [one, two] = [2, 3].map((number) => {
      const { lease, identity } = vmOf(host, number);
      assert.equal(wayOf(host, number), 'ready clone');
      const { spec, systemId } = recordOf(host, number);
      assert.deepEqual([identity?.hostname, identity?.systemId], [lease?.hostname, lease?.systemId]);
      assert.deepEqual([spec.hostname, systemId], [lease?.hostname, lease?.systemId]);
      return [lease?.hostname, lease?.systemId];
    });
    assert.match(String(one?.[0]), /^m-[0-9a-f]{12}$/);
    assert.notEqual(one?.[0], two?.[0]);
    assert.notEqual(one?.[1], two?.[1]);
  });

  it('come with a full identity when an older guest agent cannot claim, and without names', async () => {
    const host = await newHost();
    host.hypervisor.canBeClaimed = false;
    for (const number of [2, 3, 4]) await ensure(host, number); // the clones that are ready now can be claimed
    await filled(host);
    const waitingBefore = waiting(host);
    const { private_ip } = await ensure(host, 5);
    const vm = vmOf(host, 5);
    assert.ok(waitingBefore.includes(vm));
    assert.deepEqual([vm.identity?.hostname, vm.identity?.systemId], [UNPLACED.hostname, undefined]);
    assert.equal(vm.identity?.machineId, idOf(5));
    assert.equal(vm.identity?.address, `${private_ip}/16`);
    const { spec, systemId } = recordOf(host, 5);
    assert.deepEqual([spec.hostname, systemId], [UNPLACED.hostname, null]);
    checkMachines(host);
  });

  it('stay with their machines after kill -9, a stop and a start', async () => {
    const host = await newHost();
    const { private_ip } = await ensure(host, 2);
    const { lease } = vmOf(host, 2);
    await host.start();
    assert.equal(host.registry.get(idOf(2)).privateIp, private_ip);
    const { spec } = { spec: { ...UNPLACED, private_ip: String(private_ip) } };
    await host.registry.ensure(idOf(2), { generation: 2, desired: 'stopped', spec });
    await host.registry.ensure(idOf(2), { generation: 3, desired: 'running', spec });
    const { identity } = vmOf(host, 2);
    assert.equal(identity?.address, `${private_ip}/16`);
    assert.deepEqual([identity?.hostname, identity?.systemId], [lease?.hostname, lease?.systemId]);
    assert.notEqual(identity?.hostname, spec.hostname);
    checkMachines(host);
  });

  it('are given to nobody else, however many machines are created at once', async () => {
    const host = await newHost();
    await Promise.all(Array.from({ length: 12 }, (_, index) => ensure(host, index + 2)));
    await filled(host);
    const addresses = [...addressesOf(host), ...waiting(host).map((vm) => host.network.attached.get(vm.vmId))];
    assert.equal(new Set(addresses).size, addresses.length, String(addresses));
    checkMachines(host);
  });

  it('go to a machine that names one; the clone then serves a machine with another address', async () => {
    const host = await newHost(1);
    const [clone] = waiting(host);
    const named = String(clone && host.network.attached.get(clone.vmId));
    assert.equal((await ensure(host, 2, named)).private_ip, named);
    const { private_ip } = await ensure(host, 3);
    assert.notEqual(private_ip, named);
    checkMachines(host);
  });

  it('cannot be named by a machine while another one starts with them', async () => {
    const host = await newHost(1);
    const [clone] = waiting(host);
    const named = String(clone && host.network.attached.get(clone.vmId));
    const identities = () => host.hypervisor.passed.filter((point) => point === 'setIdentity').length;
    const before = identities();
    const release = host.hypervisor.hold('setIdentity');
    const creating = ensure(host, 2);
    await until('the identity is on its way', () => identities() > before);
    await assert.rejects(ensure(host, 3, named), { code: 'conflict' });
    release();
    assert.equal((await creating).private_ip, named);
    checkMachines(host);
  });

  it('may be missing on a host, which does not count against the template', async () => {
    const host = await newHost(1);
    let faults = 0;
    host.hypervisor.isFaulty = (point) => point === 'assign' && ++faults > 0;
    await ensure(host, 2);
    // A template is removed after three failures of its guests.
    await until('five clones got no address', () => {
      host.pool?.fill();
      return faults >= 5 && waiting(host).length === 0;
    });
    assert.ok(host.templates?.has(keyOf(host)), 'the template is still there');
    checkMachines(host);
  });

  it('are leased anew after kill -9 of the agent, and never twice', async () => {
    const host = await newHost();
    for (let kill = 0; kill < 25; kill++) {
      const first = kill * 4 + 2;
      const creating = [0, 1, 2, 3].map((index) => ensure(host, first + index).catch(() => undefined));
      for (let turn = 0; turn < kill * 3; turn++) await new Promise((resolve) => setImmediate(resolve));
      host.kill();
      // Ends the timers of the dead agent, which would retry for ever.
      void host.pool?.close();
      await host.start();
      await Promise.race([Promise.all(creating), new Promise((resolve) => setImmediate(resolve))]);
      for (const index of [0, 1, 2, 3]) await ensure(host, first + index, undefined, 2);
      const addresses = addressesOf(host);
      assert.equal(new Set(addresses).size, addresses.length, String(addresses));
      checkMachines(host);
      for (const index of [0, 1, 2, 3]) await host.registry.destroy(idOf(first + index), 3);
    }
  });
});
