// Tests jobs and the leased address of a real machine: merged output, commands longer than the kernel's limit for an
// argument, and a late start request, which must be refused. Needs root and the base image.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { JobReport, MachineReport, StartJob } from '@sandbar/contract/host-api.ts';
import { AgentProcess } from './support/agent-process.ts';

const ID = '019a0000-0000-7000-8000-0000000000f1';

describe('jobs of a real machine', { skip: process.getuid?.() !== 0 }, () => {
  const agent = new AgentProcess();
  before(async () => {
    await agent.start();
    await agent.run(ID);
  });
  after(() => agent.close());
  const report = () => agent.done<MachineReport>('GET', `/v1/machines/${ID}`);
  const run = async (job: Omit<StartJob, 'generation' | 'timeout_sec'>) => {
    const path = `/v1/machines/${ID}/jobs/${randomUUID()}`;
    const { generation } = await report();
    await agent.done('PUT', path, { ...job, generation, timeout_sec: 60 } satisfies StartJob);
    const { exit_code } = await agent.done<JobReport>('GET', `${path}?wait_ms=60000`);
    const read = (stream: string) =>
      agent.done<string>('GET', `${path}/output?stream=${stream}&offset=0&limit=1000000&wait_ms=0`);
    return [exit_code, String(await read('stdout')), String(await read('stderr'))];
  };

  it('merged output is in the order in which it was written, and stderr is empty', async () => {
    const command = 'for n in 1 2 3; do echo o$n; echo e$n >&2; done';
    assert.deepEqual(await run({ command, merge_output: true }), [0, 'o1\ne1\no2\ne2\no3\ne3\n', '']);
    assert.deepEqual(await run({ command }), [0, 'o1\no2\no3\n', 'e1\ne2\ne3\n']);
  });

  it('a command longer than an argument runs as a shorter one does, also for another user', async () => {
    const command = `echo $0 $# $(id -un); read -r line; echo $line; exit 7\n#${'x'.repeat(300_000)}`;
    const stdin = Buffer.from('typed\n').toString('base64');
    assert.deepEqual(await run({ command, stdin, user: 'nobody' }), [7, '/bin/sh 0 nobody\ntyped\n', '']);
  });

  it('the base image has python, adduser and git', async () => {
    const [code, output] = await run({ command: 'python -c "print(1+1)"; command -v adduser; command -v git' });
    assert.deepEqual([code, output], [0, '2\n/usr/sbin/adduser\n/usr/bin/git\n']);
  });

  it('the address is the leased one, and outlives the agent and a stop; a start from before the stop is refused', async () => {
    const { private_ip, generation } = await report();
    assert.match(String(private_ip), /^\d+\.\d+\.0\.4$/);
    const addresses = async () => (await run({ command: 'ip -4 -o address show scope global' }))[1];
    assert.match(String(await addresses()), new RegExp(`inet ${private_ip}/16 `));
    await agent.kill();
    await agent.start();
    await agent.stop(ID);
    await agent.run(ID);
    assert.match(String(await addresses()), new RegExp(`inet ${private_ip}/16 `));
    const late = { command: 'touch /late', timeout_sec: 60, generation };
    const answer = await agent.call('PUT', `/v1/machines/${ID}/jobs/${randomUUID()}`, late);
    assert.deepEqual([answer.status, answer.body.code], [409, 'conflict']);
    assert.deepEqual(await run({ argv: ['test', '-e', '/late'] }), [1, '', '']);
  });
});
