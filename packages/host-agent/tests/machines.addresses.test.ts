// A machine keeps for its life the address that the host leased to it, and no two machines ever have the same.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import type { EnsureMachine, MachineReport } from '@sandbar/contract/host-api.ts';
import { readMachineRecord } from '../src/machines/record.ts';
import { addressAt, countAddresses } from '../src/network/addresses.ts';
import { idOf } from './support/clones.ts';
import { FakeHost, SPEC } from './support/fake-host.ts';
import { MortalFiles } from './support/mortal-files.ts';

const { private_ip: _, ...UNPLACED } = SPEC;

const want = (
  generation: number,
  private_ip?: string,
  desired: EnsureMachine['desired'] = 'running',
): EnsureMachine => ({
  generation,
  desired,
  spec: { ...UNPLACED, ...(private_ip === undefined ? {} : { private_ip }) },
});

describe('addresses of machines', () => {
  let host: FakeHost;
  const used: FakeHost[] = [];
  const newHost = () => {
    const made = new FakeHost();
    used.push(made);
    return made;
  };
  beforeEach(async () => {
    host = newHost();
    await host.start();
  });
  after(() => {
    for (const one of used) one.remove();
  });
  const create = async (number: number, generation = 1) => {
    const { private_ip } = await host.registry.ensure(idOf(number), want(generation));
    assert.ok(private_ip);
    return private_ip;
  };
  const recorded = (number: number) => readMachineRecord(join(host.paths.machines, idOf(number)))?.spec.private_ip;

  it('the host leases one where none is sent, tells the guest, the network, its record and the report', async () => {
    const address = await create(1);
    const vm = host.hypervisor.running.get(idOf(1)) ?? assert.fail('no VM');
    assert.equal(address, '10.200.0.4');
    assert.equal(vm.identity?.address, '10.200.0.4/16');
    assert.equal(host.network.attached.get(vm.vmId), address);
    assert.equal(recorded(1), address);
    assert.deepEqual(
      host.registry.reports().map(({ private_ip }) => private_ip),
      [address],
    );
  });

  it('many creates at once get as many addresses, and the same create twice gets one', async () => {
    const numbers = Array.from({ length: 40 }, (_, index) => index);
    const addresses = await Promise.all([...numbers, ...numbers].map((number) => create(number)));
    assert.equal(new Set(addresses).size, 40);
    assert.deepEqual(addresses.slice(0, 40), addresses.slice(40));
  });

  it('a repeated ensure, a later start and another agent find the address of the record', async () => {
    const address = await create(1);
    assert.equal(await create(1), address);
    await host.registry.ensure(idOf(1), want(2, undefined, 'stopped'));
    await host.start();
    assert.equal(await create(1, 3), address);
    assert.equal((await host.registry.ensure(idOf(1), want(4, address))).private_ip, address);
  });

  it('an address that is sent is used, and stays the machine’s', async () => {
    assert.equal((await host.registry.ensure(idOf(1), want(1, '10.200.7.7'))).private_ip, '10.200.7.7');
    assert.equal(await create(1, 2), '10.200.7.7');
  });

  it('an address that another machine has, running, stopped or being made, is a conflict that says so', async () => {
    const taken = { code: 'conflict', message: /another machine of the host has the address 10\.200\.7\.7/ };
    const making = host.registry.ensure(idOf(1), want(1, '10.200.7.7'));
    await assert.rejects(host.registry.ensure(idOf(2), want(1, '10.200.7.7')), taken);
    await making;
    await assert.rejects(host.registry.ensure(idOf(2), want(1, '10.200.7.7')), taken);
    await host.registry.ensure(idOf(1), want(2, undefined, 'stopped'));
    await assert.rejects(host.registry.ensure(idOf(2), want(1, '10.200.7.7')), taken);
    await create(2);
    await assert.rejects(host.registry.ensure(idOf(2), want(2, '10.200.7.7')), taken);
    assert.equal(host.hypervisor.running.size, 1);
  });

  it('a machine neither changes its address nor gets one that is not for machines', async () => {
    const address = await create(1);
    await assert.rejects(host.registry.ensure(idOf(1), want(2, '10.200.7.7')), {
      code: 'conflict',
      message: `the machine has the address ${address} on its host, not 10.200.7.7`,
    });
    assert.equal((await host.registry.ensure(idOf(1), want(3, '10.200.7.7', 'stopped'))).private_ip, address);
    for (const other of ['10.200.0.1', '10.200.255.255', '10.201.0.9'])
      await assert.rejects(host.registry.ensure(idOf(2), want(1, other)), { code: 'conflict', message: /subnet/ });
    assert.deepEqual(readdirSync(host.paths.machines), [idOf(1)]);
  });

  it('a host without a free address says that its subnet is full, and takes the next one that is freed', async () => {
    const { subnet } = host.network;
    const leased = await create(1);
    const addresses = Array.from({ length: countAddresses(subnet) }, (_, counter) => addressAt(subnet, counter));
    host.vms.heldAddresses = () => addresses.values();
    await assert.rejects(create(2), { code: 'fleet_capacity', message: /limited to 65531 machines/ });
    assert.deepEqual(readdirSync(host.paths.machines), [idOf(1)]);
    host.vms.heldAddresses = () => addresses.filter((address) => address !== '10.200.9.9').values();
    assert.deepEqual([leased, await create(2)], ['10.200.0.4', '10.200.9.9']);
  });

  it('the address of a removed machine is nobody’s before its network is gone', async () => {
    const address = await create(1);
    const { detach } = host.network;
    host.network.detach = () => Promise.reject(new Error('ip failed'));
    await host.registry.destroy(idOf(1), 2);
    assert.deepEqual([...host.vms.heldAddresses()], [address]);
    host.network.detach = detach;
    await create(2);
    await host.registry.destroy(idOf(2), 2);
    assert.deepEqual([...host.vms.heldAddresses()], []);
  });

  it('the address of a VM that another agent adopted is held until its network is gone as well', async () => {
    const address = await create(1);
    await host.start();
    host.network.detach = () => Promise.reject(new Error('ip failed'));
    await host.registry.destroy(idOf(1), 2);
    assert.deepEqual([...host.vms.heldAddresses()], [address]);
  });
});

describe('addresses of machines, by agents that are killed', () => {
  let files: MortalFiles;
  const used: FakeHost[] = [];
  beforeEach(() => {
    files = new MortalFiles();
  });
  afterEach(() => files.close());
  after(() => {
    for (const one of used) one.remove();
  });

  it('whichever change of a file was the last: each machine has an address of its own, and the one that was told', async () => {
    let count = Number.POSITIVE_INFINITY;
    for (let pass = 1; pass <= count; pass++) {
      for (const when of ['before', 'after'] as const) {
        const host = new FakeHost();
        used.push(host);
        await host.start();
        const told = new Map<string, string | null>();
        const tell = ({ machine_id, private_ip }: MachineReport) => void told.set(machine_id, private_ip);
        const death = new Promise<void>((resolve) => {
          files.onDeath = () => {
            host.kill();
            resolve();
          };
        });
        files.begin({ pass, when });
        const creates = [1, 2].map((number) => host.registry.ensure(idOf(number), want(1)).then(tell));
        await Promise.race([Promise.allSettled(creates), death]);
        if (!host.isDead) count = Math.min(count, files.passed);
        files.revive();
        const records = new Map(
          readdirSync(host.paths.machines).map((id) => [id, addressIn(join(host.paths.machines, id, 'machine.json'))]),
        );

        await host.start();
        for (const number of [3, 2, 1]) await host.registry.ensure(idOf(number), want(1));
        const reports = host.registry.reports();
        const what = `killed ${when} change ${pass}`;
        assert.equal(new Set(reports.map(({ private_ip }) => private_ip)).size, 3, what);
        for (const { machine_id, private_ip } of reports) {
          if (told.has(machine_id)) assert.equal(private_ip, told.get(machine_id), what);
          const record = records.get(machine_id);
          if (record !== undefined) assert.equal(private_ip, record, what);
        }
        await host.close();
      }
    }
    assert.ok(count > 5, `${count} changes of files`);
  });
});

function addressIn(path: string): string | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).spec.private_ip;
  } catch {
    return undefined;
  }
}
