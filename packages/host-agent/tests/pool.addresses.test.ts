// A clone in the pool has an address before any machine asks for it. The machine that takes the clone takes over the
// address, and no two machines ever have the same one.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
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

  it('stay with their machines after kill -9, a stop and a start', async () => {
    const host = await newHost();
    const { private_ip } = await ensure(host, 2);
    await host.start();
    assert.equal(host.registry.get(idOf(2)).privateIp, private_ip);
    const { spec } = { spec: { ...UNPLACED, private_ip: String(private_ip) } };
    await host.registry.ensure(idOf(2), { generation: 2, desired: 'stopped', spec });
    await host.registry.ensure(idOf(2), { generation: 3, desired: 'running', spec });
    assert.equal(vmOf(host, 2).identity?.address, `${private_ip}/16`);
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
