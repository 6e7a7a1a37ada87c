// Tests a machine's owner task: the order of operations, faults at each step, restarts of the agent.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import type { HostNetwork } from '../src/network/network.ts';
import { uplinkMtu } from '../src/network/uplink.ts';
import { type FakeHost, SPEC, until } from './support/fake-host.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const running = (generation: number) => ({ generation, desired: 'running' as const, spec: SPEC });
const stopped = (generation: number) => ({ generation, desired: 'stopped' as const, spec: SPEC });

describe('host agent machines', () => {
  let host: FakeHost;
  const newHost = makeHosts();
  beforeEach(async () => {
    host = newHost();
    await host.start();
  });
  const status = () => host.registry.reports()[0]?.status;

  it('ensure running twice starts one VM with the identity of its spec', async () => {
    const [first, second] = await Promise.all([
      host.registry.ensure(ID, running(1)),
      host.registry.ensure(ID, running(1)),
    ]);
    assert.equal(first.status, 'running');
    const { start_path, ...report } = first;
    assert.equal(start_path, 'cold');
    assert.deepEqual(report, second, 'only the call that started it says how');
    assert.equal(host.hypervisor.launched.length, 1);
    assert.deepEqual(
      { ...host.hypervisor.running.get(ID)?.identity },
      {
        machineId: ID,
        hostname: 'test',
        address: '10.200.0.9/16',
        gateway: '10.200.0.1',
        nameServers: ['10.200.0.3'],
        mac: '02:5b:0a:c8:00:09',
        mtu: uplinkMtu(),
      },
    );
  });

  it('tells those who listen of a stop, and not of a start, which is answered', async () => {
    const told: unknown[] = [];
    host.registry.events.on('event', (event) => told.push(event));
    await host.registry.ensure(ID, running(1));
    assert.deepEqual(told, []);
    const report = await host.registry.ensure(ID, stopped(2));
    assert.deepEqual(told, [{ type: 'machine', machine: report }]);
  });

  for (const point of ['launch', 'connectGuest', 'setIdentity'] as const) {
    it(`a boot that fails at ${point} leaves no VM, and a later ensure starts it`, async () => {
      host.hypervisor.faults.push(point, point);
      await assert.rejects(host.registry.ensure(ID, running(1)));
      assert.equal(status(), 'stopped');
      assert.equal(host.hypervisor.running.size, 0);
      host.hypervisor.faults.length = 0;
      assert.equal((await host.registry.ensure(ID, running(1))).status, 'running');
    });
  }

  it('a start that waits for a destroy is refused, and makes no folder', async () => {
    await host.registry.ensure(ID, running(1));
    const machine = host.registry.get(ID);
    await machine.ensure(stopped(2));
    const destroyed = host.registry.destroy(ID, 3);
    await assert.rejects(machine.ensure(running(4)), { code: 'conflict' });
    await destroyed;
    assert.deepEqual(readdirSync(join(host.dir, 'machines')), []);
  });

  it('a boot that hangs is retried once', async () => {
    host.hypervisor.faults.push('connectGuest');
    assert.equal((await host.registry.ensure(ID, running(1))).status, 'running');
    assert.equal(host.hypervisor.launched.length, 2);
  });

  it('a guest that powers off in its boot, as without a working timer, is booted again', async () => {
    const release = host.hypervisor.hold('connectGuest');
    const ensured = host.registry.ensure(ID, running(1));
    await until('its boot', () => host.hypervisor.passed.includes('connectGuest'));
    host.hypervisor.running.get(ID)?.exitByItself({ cause: 'powered-off', reason: 'powered off' });
    await until('the second boot', () => host.hypervisor.launched.length === 2);
    release();
    assert.equal((await ensured).status, 'running');
    assert.equal(host.hypervisor.launched.length, 2);
    assert.equal(host.hypervisor.running.size, 1);
  });

  it('an older generation is refused, also after a destroy', async () => {
    await host.registry.ensure(ID, running(3));
    await assert.rejects(host.registry.ensure(ID, stopped(2)), { code: 'conflict' });
    await host.registry.destroy(ID, 4);
    await assert.rejects(host.registry.ensure(ID, running(3)), { code: 'conflict' });
    assert.equal(host.hypervisor.running.size, 0);
    assert.deepEqual(readdirSync(join(host.dir, 'machines')), []);
  });

  it('destroy may be repeated, and refuses a create that arrives late', async () => {
    await host.registry.destroy(ID, 2);
    await host.registry.destroy(ID, 2);
    await assert.rejects(host.registry.ensure(ID, running(1)), { code: 'conflict' });
  });

  it('a machine whose VM dies is failed with a reason, and its jobs are lost', async () => {
    await host.registry.ensure(ID, running(1));
    await host.registry.get(ID).startJob('job-1', { command: 'x', timeout_sec: 10, generation: 1 });
    host.hypervisor.running.get(ID)?.exitByItself({ cause: 'died', reason: 'QEMU crashed' });
    await until('failed', () => status() === 'failed');
    assert.equal(host.registry.reports()[0]?.reason, 'QEMU crashed');
    assert.equal((await host.registry.get(ID).job('job-1')).report().status, 'lost');
    assert.ok(host.events.some((event) => event.type === 'job' && event.job.status === 'lost'));
    assert.ok(existsSync(join(host.dir, 'machines', ID, 'disk.qcow2')), 'the disk stays');
  });

  it('a machine is stopped when its guest powers off, and runs again after a reboot', async () => {
    await host.registry.ensure(ID, running(1));
    host.hypervisor.running.get(ID)?.exitByItself({ cause: 'rebooted', reason: 'rebooted' });
    await until('second VM', () => host.hypervisor.launched.length === 2 && status() === 'running');
    host.hypervisor.running.get(ID)?.exitByItself({ cause: 'powered-off', reason: 'powered off' });
    await until('stopped', () => status() === 'stopped');
  });

  it('a new agent takes over a running VM and continues its jobs at the end of the spool', async () => {
    await host.registry.ensure(ID, running(1));
    await host.registry.get(ID).startJob('job-1', { command: 'x', timeout_sec: 10, generation: 1 });
    const vm = host.hypervisor.running.get(ID);
    const guestJob = vm?.jobs.get('job-1');
    guestJob?.print('stdout', 'before ');
    const before = await host.registry.get(ID).job('job-1');
    await until('spooled', () => before.offsets.stdout === 7);

    await host.start();
    assert.equal(status(), 'running');
    assert.equal(host.hypervisor.launched.length, 1);
    guestJob?.print('stdout', 'after');
    guestJob?.finish('job-1', { exitCode: 3 });
    const report = await (await host.registry.get(ID).job('job-1')).waitForEnd(5000);
    assert.deepEqual([report.status, report.exit_code, report.stdout_bytes], ['exited', 3, 12]);
    const page = await (await host.registry.get(ID).job('job-1')).readOutput('stdout', 0, 100, 0);
    assert.deepEqual([page.data.toString(), page.eof], ['before after', true]);
    await until('forgotten in the guest', () => vm?.jobs.size === 0);
  });

  it('a machine whose VM is gone is failed when the host did not reboot, and stopped when the host did', async () => {
    await host.registry.ensure(ID, running(1));
    host.hypervisor.running.clear();
    await host.start('boot-1');
    assert.equal(status(), 'failed');
    await host.registry.ensure(ID, running(2));
    host.hypervisor.running.clear();
    await host.start('boot-2');
    assert.deepEqual([status(), host.registry.reports()[0]?.reason], ['stopped', 'the host was restarted']);
  });

  it('a broken session is replaced, and no byte is lost or duplicated', async () => {
    await host.registry.ensure(ID, running(1));
    await host.registry.get(ID).startJob('job-1', { command: 'x', timeout_sec: 10, generation: 1 });
    const vm = host.hypervisor.running.get(ID);
    const job = await host.registry.get(ID).job('job-1');
    for (let round = 0; round < 5; round++) {
      vm?.jobs.get('job-1')?.print('stdout', `round ${round};`);
      if (round % 2 === 0) vm?.session?.close();
      await until(`round ${round} spooled`, () => job.offsets.stdout === (round + 1) * 8);
    }
    vm?.jobs.get('job-1')?.finish('job-1');
    await job.waitForEnd(5000);
    const page = await job.readOutput('stdout', 0, 1000, 0);
    assert.equal(page.data.toString(), 'round 0;round 1;round 2;round 3;round 4;');
  });

  it('a job start without an answer is resolved by a new session, which follows the running job', async () => {
    await host.registry.ensure(ID, running(1));
    host.hypervisor.faults.push('startJob');
    const job = await host.registry.get(ID).startJob('job-1', { command: 'x', timeout_sec: 10, generation: 1 });
    assert.equal(job.report().status, 'running');
    host.hypervisor.running.get(ID)?.jobs.get('job-1')?.print('stdout', 'runs');
    await until('followed', () => job.offsets.stdout === 4);
  });

  it('a failure to remove the network does not hide the end of a VM, and the network is removed later', async () => {
    await host.registry.ensure(ID, running(1));
    const { detach } = host.network;
    host.network.detach = () => Promise.reject(new Error('ip failed'));
    host.hypervisor.running.get(ID)?.exitByItself({ cause: 'died', reason: 'QEMU crashed' });
    await until('failed', () => status() === 'failed');
    await host.registry.ensure(ID, running(2));
    assert.equal((await host.registry.ensure(ID, stopped(3))).status, 'stopped');
    await host.registry.destroy(ID, 4);
    assert.deepEqual(readdirSync(join(host.dir, 'machines')), []);
    const detached = new Set<string>();
    (host.network as HostNetwork).detach = async (vmId) => void detached.add(vmId);
    const other = '019a0000-0000-7000-8000-00000000000b';
    await host.registry.ensure(other, running(1));
    await host.registry.destroy(other, 2);
    host.network.detach = detach;
    assert.deepEqual(detached, new Set(host.hypervisor.launched.map(({ vmId }) => vmId)));
  });

  it('a destroy does not wait for a guest that is powering off', { timeout: 5000 }, async () => {
    await host.registry.ensure(ID, running(1));
    const guest = host.hypervisor.running.get(ID)?.session;
    assert.ok(guest);
    const asked = new Promise<void>((resolve) => {
      guest.powerOff = async () => resolve();
    });
    const stop = host.registry.ensure(ID, stopped(2));
    await asked;
    await host.registry.destroy(ID, 3);
    assert.equal((await stop).status, 'stopped');
    assert.equal(host.hypervisor.running.size, 0);
  });

  it('an unreadable record makes its machine unavailable but not the agent, and the disk is kept', async () => {
    const other = '019a0000-0000-7000-8000-00000000000c';
    await host.registry.ensure(ID, running(1));
    await host.registry.ensure(other, { ...running(1), spec: { ...SPEC, private_ip: '10.200.0.10' } });
    await host.registry.get(other).startJob('job-1', { command: 'x', timeout_sec: 10, generation: 1 });
    writeFileSync(join(host.dir, 'machines', ID, 'machine.json'), '');
    writeFileSync(join(host.dir, 'machines', other, 'jobs/job-1/job.json'), '{');
    await host.start();
    assert.deepEqual(
      host.registry.reports().map((report) => [report.machine_id, report.status]),
      [[other, 'running']],
    );
    assert.deepEqual([...host.hypervisor.running.keys()], [other]);
    assert.ok(existsSync(join(host.dir, 'machines', ID, 'disk.qcow2')));
    await assert.rejects(host.registry.get(other).job('job-1'), { code: 'not_found' });
    await host.registry.destroy(ID, 2);
    assert.ok(!existsSync(join(host.dir, 'machines', ID)), 'a destroy removes it');
  });

  it('a directory without a record is not a machine and is removed', async () => {
    mkdirSync(join(host.dir, 'machines', 'x'));
    await host.start();
    assert.deepEqual(readdirSync(join(host.dir, 'machines')), []);
  });
});
