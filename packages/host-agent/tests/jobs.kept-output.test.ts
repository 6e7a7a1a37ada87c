// Tests the limits on the stored output of ended jobs: what is dropped and in which order, what a reader of dropped
// output gets, and how the next agent completes a drop that a crash interrupted.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import type { Machine } from '../src/machines/machine.ts';
import { type FakeHost, SPEC, until } from './support/fake-host.ts';
import type { FakeVm } from './support/fake-vm.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

const ID = '019a0000-0000-7000-8000-00000000000b';
const LIMITS = { bytes: 1_000_000, jobs: 20 };
const expired = { code: 'output_expired' };

describe('the kept output of ended jobs', () => {
  let host: FakeHost;
  let machine: Machine;
  const start = async (limits = LIMITS) => {
    await host.start('boot-1', 1_000_000, limits);
    machine = host.registry.get(ID);
  };
  const newHost = makeHosts();
  beforeEach(async () => {
    host = newHost();
    await host.start('boot-1', 1_000_000, LIMITS);
    await host.registry.ensure(ID, { generation: 1, desired: 'running', spec: SPEC });
    machine = host.registry.get(ID);
  });

  const vm = () => host.hypervisor.running.get(ID) as FakeVm;
  const jobsDir = () => join(host.dir, 'machines', ID, 'jobs');
  const begin = async (id: string, stdout: number, stderr = 0) => {
    await machine.startJob(id, { command: 'x', timeout_sec: 10, generation: 1 });
    vm().jobs.get(id)?.print('stdout', 'o'.repeat(stdout));
    vm().jobs.get(id)?.print('stderr', 'e'.repeat(stderr));
    const job = await machine.job(id);
    await until(`${id} is spooled`, () => job.offsets.stdout === stdout && job.offsets.stderr === stderr);
  };
  const end = async (id: string) => {
    vm().jobs.get(id)?.finish(id);
    await until(`${id} is over`, () => !machine.runningJobs().some((job) => job.job_id === id));
  };
  const run = async (id: string, stdout: number, stderr = 0) => {
    await begin(id, stdout, stderr);
    await end(id);
  };
  const read = async (id: string, stream: 'stdout' | 'stderr' = 'stdout') =>
    (await machine.job(id)).readOutput(stream, 0, 2_000_000, 0);
  const bytesOnDisk = () => Number(execFileSync('du', ['-sb', jobsDir()]).toString().split('\t')[0]);
  const jobIds = (count: number) => Array.from({ length: count }, (_, index) => `job-${index}`);
  /** Waits until exactly these jobs still have stored output. */
  const settled = (ids: readonly string[]) =>
    until('dropped', () => {
      const have = readdirSync(jobsDir()).filter((id) => readdirSync(join(jobsDir(), id)).includes('stdout'));
      return have.sort().join() === [...ids].sort().join();
    });

  it('the output of many jobs stays under the limit, and the oldest ended jobs lose theirs first (RES-1)', async () => {
    for (const id of jobIds(15)) await run(id, 200_000);
    await settled(jobIds(15).slice(10));
    assert.ok(bytesOnDisk() < LIMITS.bytes + 15 * 10_000, `${bytesOnDisk()} bytes are on the disk`);
    await assert.rejects(read('job-9'), expired);
    assert.equal((await read('job-10')).data.length, 200_000);
    const report = (await machine.job('job-9')).report();
    assert.deepEqual([report.output_expired, report.status, report.exit_code], [true, 'exited', 0]);
    assert.equal(report.stdout_bytes, 200_000);
    assert.equal((await machine.job('job-10')).report().output_expired, false);
    assert.deepEqual(machine.keptOutput().job_ids.sort(), jobIds(15).slice(10).sort());
  });

  it('all output can be read at once when the job has ended, is within the limit and has its output', async () => {
    await begin('job-0', 3, 2);
    const job = await machine.job('job-0');
    assert.equal(job.readAll(5), undefined, 'it runs');
    await end('job-0');
    assert.equal(job.readAll(4), undefined, 'it has more');
    assert.deepEqual(job.readAll(5), { stdout: Buffer.from('ooo'), stderr: Buffer.from('ee') });
    await run('silent', 0);
    assert.deepEqual((await machine.job('silent')).readAll(0), { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) });
    rmSync(join(jobsDir(), 'job-0', 'stderr'));
    assert.equal((await machine.job('job-0')).readAll(5), undefined, 'its output was dropped');
    assert.equal(job.readAll(5), undefined, 'its output was dropped while it was read');
  });

  it('the end decides the order and not the start, and a running job keeps its output however much it is (RES-1)', async () => {
    await begin('long', 900_000);
    await run('early', 400_000);
    await run('later', 400_000);
    assert.equal((await read('long')).data.length, 900_000);
    assert.equal((await read('early')).data.length, 400_000);
    await end('long');
    await settled(['long']);
    await assert.rejects(read('early'), expired);
    await assert.rejects(read('later'), expired);
    assert.equal((await read('long')).eof, true);
  });

  it('nothing is left of the jobs before the last ones; one without output keeps its place among those (RES-1)', async () => {
    for (const id of jobIds(25)) await run(id, id === 'job-10' ? 0 : 90_000);
    const left = jobIds(25).slice(5).sort();
    await until('forgotten', () => readdirSync(jobsDir()).sort().join() === left.join());
    await assert.rejects(machine.job('job-4'), { code: 'not_found' });
    assert.deepEqual((await read('job-10')).eof, true);
    assert.equal((await machine.job('job-10')).report().output_expired, false);
  });

  it('a job that is larger than the limit loses its own output when it ends (RES-1)', async () => {
    await start({ bytes: 100_000, jobs: 20 });
    await begin('huge', 150_000);
    assert.equal((await read('huge')).data.length, 150_000);
    await end('huge');
    await settled([]);
    await assert.rejects(read('huge'), expired);
  });

  it('a reader that waits or pages when the output goes gets output_expired, and never a short stream (RES-1)', async () => {
    await begin('read', 600_000, 100);
    const waiting = (await machine.job('read')).readOutput('stdout', 600_000, 10, 5_000);
    const loaded = await machine.job('read');
    assert.equal((await loaded.readOutput('stdout', 0, 10, 0)).data.length, 10);
    await end('read');
    assert.equal((await waiting).eof, true);
    const beforeDrop = await machine.job('read');
    await run('newer', 600_000);
    await settled(['newer']);
    for (const job of [loaded, beforeDrop, await machine.job('read')])
      for (const stream of ['stdout', 'stderr'] as const)
        await assert.rejects(job.readOutput(stream, 0, 10, 0), expired);
  });

  it('the report changes its revision with every drop, and not otherwise (RES-1)', async () => {
    const revision = () => machine.report().output_revision;
    await run('a', 600_000);
    assert.equal(revision(), null);
    await run('b', 600_000);
    const first = revision();
    assert.equal(typeof first, 'string');
    await run('c', 10);
    assert.equal(revision(), first);
    await run('d', 600_000);
    assert.notEqual(revision(), first);
    assert.equal(machine.keptOutput().output_revision, revision());
  });

  it('the next agent counts what is kept, takes lower limits, and knows that output was dropped (RES-1)', async () => {
    for (const id of jobIds(6)) await run(id, 200_000);
    await settled(jobIds(6).slice(1));
    await start();
    assert.equal(typeof machine.report().output_revision, 'string');
    await assert.rejects(read('job-0'), expired);
    await run('job-6', 200_000);
    await settled(['job-2', 'job-3', 'job-4', 'job-5', 'job-6']);
    await start({ bytes: 450_000, jobs: 20 });
    await settled(['job-5', 'job-6']);
    assert.deepEqual(machine.keptOutput().job_ids, ['job-5', 'job-6']);
  });

  it('whatever a crash has left of a drop, the next agent finishes it and shows no part of it (RES-1)', async () => {
    await run('one', 100, 100);
    await run('two', 100, 100);
    await run('three', 100, 100);
    await run('four', 100, 100);
    // Leave what a crash in the middle of a drop leaves: one of two files removed, and a job directory half removed in
    // the two possible ways.
    rmSync(join(jobsDir(), 'one', 'stdout'));
    rmSync(join(jobsDir(), 'two', 'job.json'));
    rmSync(join(jobsDir(), 'three', 'stderr'));
    writeFileSync(join(jobsDir(), 'three', 'job.json.partial'), '{');
    await start();
    await assert.rejects(read('one', 'stderr'), expired);
    assert.deepEqual(readdirSync(join(jobsDir(), 'one')), ['job.json']);
    assert.deepEqual(readdirSync(jobsDir()).sort(), ['four', 'one', 'three']);
    await assert.rejects(read('three'), expired);
    assert.equal((await read('four')).data.length, 100);
    assert.deepEqual(machine.keptOutput().job_ids, ['four']);
  });
});
