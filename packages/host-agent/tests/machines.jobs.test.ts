// Tests jobs whose machine or session ends at the same moment: no job is reported as running forever, and an ended job
// keeps its real result.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Machine } from '../src/machines/machine.ts';
import { type FakeHost, SPEC, until } from './support/fake-host.ts';
import type { FakeVm } from './support/fake-vm.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

const ID = '019a0000-0000-7000-8000-00000000000b';
const JOB = { command: 'x', timeout_sec: 10, generation: 1 };

describe('host agent jobs', () => {
  let host: FakeHost;
  let machine: Machine;
  let vm: FakeVm;
  const newHost = makeHosts();
  beforeEach(async () => {
    host = newHost();
    await host.start();
    await host.registry.ensure(ID, { generation: 1, desired: 'running', spec: SPEC });
    machine = host.registry.get(ID);
    vm = host.hypervisor.running.get(ID) as FakeVm;
  });
  const statusOf = async (jobId: string) => (await machine.job(jobId)).report().status;

  it('a job that starts while its VM dies is lost or refused', async () => {
    const started = machine.startJob('job-1', JOB).catch((error: ServiceError) => error);
    vm.exitByItself({ cause: 'died', reason: 'QEMU crashed' });
    await until('failed', () => host.registry.reports()[0]?.status === 'failed');
    const answer = await started;
    if (answer instanceof ServiceError) assert.equal(answer.code, 'conflict');
    else assert.equal(await statusOf('job-1'), 'lost');
    assert.deepEqual(machine.runningJobs(), []);
  });

  it('a job that starts while its machine is destroyed leaves nothing behind', async () => {
    const started = machine.startJob('job-1', JOB).catch(() => {});
    await host.registry.destroy(ID, 2);
    await started;
    assert.deepEqual(readdirSync(join(host.dir, 'machines')), []);
    assert.deepEqual(machine.runningJobs(), []);
  });

  it('a job whose session broke before the request reached the guest is lost, not running forever', async () => {
    const started = machine.startJob('job-1', JOB);
    vm.session?.close();
    await started;
    await until('lost', () => machine.runningJobs().length === 0);
    assert.equal(await statusOf('job-1'), 'lost');
  });

  it('a guest that never answers an acknowledgement gets no further one; otherwise every byte is acknowledged', async () => {
    await machine.startJob('job-1', JOB);
    const told: number[] = [];
    let answer = () => {};
    assert.ok(vm.session);
    vm.session.acknowledgeOutput = async (_, offsets) => {
      told.push(offsets.stdout);
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
    };
    const job = await machine.job('job-1');
    for (let round = 1; round <= 3; round++) {
      vm.jobs.get('job-1')?.print('stdout', 'x'.repeat(300_000));
      await until(`round ${round} spooled`, () => job.offsets.stdout === round * 300_000);
    }
    assert.deepEqual(told, [300_000]);
    answer();
    await until('told of the rest', () => told.at(-1) === 900_000);
    assert.equal(told.length, 2);
  });

  it('the guest is told all of a job but the generation, which is between the control plane and the host', async () => {
    const job = { argv: ['a'], merge_output: true, env: { A: 'b' }, stdin: 'aGk=', stdin_open: true, timeout_sec: 7 };
    await machine.startJob('job-1', { ...job, generation: 1 });
    assert.deepEqual(vm.jobs.get('job-1')?.spec, job);
  });

  it('a start that comes late, after the machine was stopped and started, is a conflict and starts nothing', async () => {
    await host.registry.ensure(ID, { generation: 2, desired: 'stopped', spec: SPEC });
    await host.registry.ensure(ID, { generation: 3, desired: 'running', spec: SPEC });
    const late = { code: 'conflict', message: /was stopped or changed since/ };
    for (const generation of [1, 2]) await assert.rejects(machine.startJob('job-1', { ...JOB, generation }), late);
    await host.start();
    machine = host.registry.get(ID);
    await assert.rejects(machine.startJob('job-1', JOB), late);
    assert.deepEqual(machine.runningJobs(), []);
    assert.equal(host.hypervisor.running.get(ID)?.jobs.size, 0);
    assert.equal((await machine.startJob('job-1', { ...JOB, generation: 3 })).report().status, 'running');
  });

  it('a start that waits for the guest while the machine is stopped and started runs nothing in the next boot', async () => {
    vm.session?.close();
    host.hypervisor.faults.push('connectGuest');
    const started = machine.startJob('job-1', JOB).catch(() => {});
    await host.registry.ensure(ID, { generation: 2, desired: 'stopped', spec: SPEC });
    await host.registry.ensure(ID, { generation: 3, desired: 'running', spec: SPEC });
    await started;
    assert.deepEqual(machine.runningJobs(), []);
    assert.equal(host.hypervisor.running.get(ID)?.jobs.size, 0);
  });

  it('a generation that changed what a running machine has, and not its boot, refuses no job', async () => {
    await host.registry.ensure(ID, { generation: 2, desired: 'running', spec: SPEC });
    for (const generation of [1, 2, 3])
      assert.equal((await machine.startJob(`job-${generation}`, { ...JOB, generation })).report().status, 'running');
  });

  it('an ended job reports how much of its stdin was accepted, also after the agent was restarted', async () => {
    await machine.startJob('job-1', { ...JOB, stdin_open: true });
    vm.jobs.get('job-1')?.finish('job-1', { stdinBytes: 12 });
    const ended = await (await machine.job('job-1')).waitForEnd(5_000);
    assert.equal(ended.stdin_bytes, 12);
    await until('recorded', () => vm.jobs.size === 0);
    await host.start();
    assert.equal((await host.registry.get(ID).job('job-1')).report().stdin_bytes, 12);
  });

  it('a cancel that comes while the job starts waits until the guest knows the job', async () => {
    const guest = vm.session;
    assert.ok(guest);
    const held = Promise.withResolvers<void>();
    const startJob = guest.startJob.bind(guest);
    guest.startJob = async (jobId, spec) => {
      await held.promise;
      return startJob(jobId, spec);
    };
    const canceledWhenAsked: boolean[] = [];
    const cancelJob = guest.cancelJob.bind(guest);
    guest.cancelJob = (jobId) => {
      canceledWhenAsked.push(vm.jobs.has(jobId));
      return cancelJob(jobId);
    };
    const starting = machine.startJob('job-1', JOB);
    await until('the job is in the table', () => machine.runningJobs().length === 1);
    const canceling = machine.cancelJob('job-1');
    for (let turns = 0; turns < 100; turns++) await new Promise((resolve) => setImmediate(resolve));
    held.resolve();
    await Promise.all([starting, canceling]);
    assert.deepEqual(canceledWhenAsked, [true]);
    assert.equal((await (await machine.job('job-1')).waitForEnd(5_000)).status, 'canceled');
  });

  it('a cancel that comes as the job ends answers the job as it ended', async () => {
    await machine.startJob('job-1', JOB);
    const guest = vm.session;
    assert.ok(guest);
    guest.cancelJob = async () => {
      vm.jobs.get('job-1')?.finish('job-1', { exitCode: 4 });
      await until('forgotten', () => vm.jobs.size === 0);
      throw new ServiceError('not_found', 'no such job');
    };
    const report = await machine.cancelJob('job-1');
    assert.deepEqual([report.status, report.exit_code], ['exited', 4]);
  });

  it('while the disk is short, output stays in the guest, and then none of it is missing (RES-1)', async () => {
    await machine.startJob('job-1', JOB);
    host.room.isShort = true;
    vm.jobs.get('job-1')?.print('stdout', 'x'.repeat(300_000));
    vm.jobs.get('job-1')?.finish('job-1');
    const job = await machine.job('job-1');
    for (let turns = 0; turns < 100; turns++) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([job.offsets.stdout, job.isRunning], [0, true]);
    host.room.isShort = false;
    await until('the end', () => !job.isRunning);
    assert.equal((await job.readOutput('stdout', 0, 1_000_000, 0)).data.length, 300_000);
  });
});
