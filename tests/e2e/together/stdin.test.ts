// The open stdin of jobs in a real machine: programs that are driven line by line, exact bytes, and signals.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import type { ExecStdin } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import type { Job } from '@sandbar/sdk/job.ts';
import type { OutputChunk } from '@sandbar/sdk/output-chunks.ts';
import {
  API_KEY,
  BASE_URL,
  createMachine,
  destroyMachine,
  expectStatus,
  getMachine,
  startExec,
  until,
  waitForExec,
} from '../support/service.ts';

const CLI = new URL('../../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;
const sandbar = new Client({ baseUrl: BASE_URL, apiKey: API_KEY });

/** Reads what a job prints, piece by piece. */
class Reader {
  readonly #stream: AsyncGenerator<OutputChunk>;
  #text = '';

  constructor(job: Job) {
    this.#stream = job.output({ stream: 'stdout' });
  }

  /** Returns the output up to `end` and after what was returned before. */
  async readTo(end: string): Promise<string> {
    for (;;) {
      const at = this.#text.indexOf(end);
      if (at >= 0) {
        const found = this.#text.slice(0, at + end.length);
        this.#text = this.#text.slice(at + end.length);
        return found;
      }
      const { done, value } = await this.#stream.next();
      assert.ok(!done, `the job ended after ${JSON.stringify(this.#text)}, before ${JSON.stringify(end)}`);
      this.#text += Buffer.from(value.data).toString();
    }
  }
}

function put(job: Job, query: string, bytes: Uint8Array<ArrayBuffer> = new Uint8Array()): Promise<Response> {
  return fetch(`${BASE_URL}/v1/machines/${job.machineId}/execs/${job.id}/stdin?${query}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/octet-stream' },
    body: bytes,
  });
}

describe('the stdin of a running job', () => {
  let machine: Machine;
  before(async () => {
    machine = await createMachine();
  });
  after(() => destroyMachine(machine.id));
  const open = (argv: string[]) => sandbar.execs.startJob(machine.id, { argv }, { stdinOpen: true });

  it('drives a Python prompt line by line, which an interrupt does not end', async () => {
    const job = await open(['python3', '-u', '-i', '-c', 'import sys, time; sys.ps1 = sys.ps2 = ""']);
    const output = new Reader(job);
    await job.stdin.write('x = 20\n');
    for (let round = 1; round <= 5; round++) {
      await job.stdin.write(`print("=", x + ${round})\n`);
      assert.equal(await output.readTo('\n'), `= ${20 + round}\n`);
    }
    await job.stdin.write('print("asleep"); time.sleep(1000)\n');
    await output.readTo('asleep\n');
    await job.signal('INT');
    await job.stdin.write('print("awake")\n');
    await output.readTo('awake\n');
    await job.stdin.write('raise SystemExit(7)\n');
    const ended = await job.wait();
    assert.deepEqual([ended.status, ended.exit_code], ['exited', 7]);
    assert.equal((await put(job, 'offset=0&close=true')).status, 200, 'a close after the end');
    const late = await put(job, 'offset=100000', new Uint8Array(1));
    assert.deepEqual([late.status, ((await late.json()) as { code: string }).code], [409, 'conflict']);
  });

  it('writes one of sixteen requests with the same bytes, and refuses a gap', async () => {
    const job = await open(['sha256sum']);
    const content = randomBytes(1_600_000);
    for (let offset = 0; offset < content.length; offset += 400_000) {
      const piece = new Uint8Array(content.subarray(offset, offset + 400_000));
      const answers = await Promise.all(Array.from({ length: 16 }, () => put(job, `offset=${offset}`, piece)));
      for (const answer of answers) {
        assert.equal(answer.status, 200);
        assert.equal(((await answer.json()) as ExecStdin).next_offset, offset + 400_000);
      }
    }
    const gap = await put(job, `offset=${content.length + 1}`, new Uint8Array(1));
    assert.equal(gap.status, 409);
    assert.match(((await gap.json()) as { detail: string }).detail, /the next byte that the job takes is at 1600000/);
    await put(job, `offset=${content.length}&close=true`);
    const sum = await new Reader(job).readTo('\n');
    assert.equal(sum.split(' ')[0], createHash('sha256').update(content).digest('hex'));
  });

  it('says how much was accepted when the command does not read, and goes on when it does', async () => {
    const job = await open(['sh', '-c', 'trap "exec sha256sum" USR1; while :; do sleep 0.05; done']);
    const content = randomBytes(200_000);
    const answer = await put(job, 'offset=0', new Uint8Array(content));
    assert.deepEqual(await answer.json(), { next_offset: 65_536, closed: false });
    await job.signal('USR1');
    const rest = sandbar.execs.job(machine.id, job.id).stdin;
    await rest.write(content.subarray(65_536));
    await rest.close();
    const sum = await new Reader(job).readTo('\n');
    assert.equal(sum.split(' ')[0], createHash('sha256').update(content).digest('hex'));
  });

  it('a command that closed its stdin, and one that was started without, refuse bytes', async () => {
    const closing = await open(['sh', '-c', 'read -r line; exec 0<&-; echo $line; exec sleep 1000']);
    await closing.stdin.write('hi\n');
    await new Reader(closing).readTo('hi\n');
    await assert.rejects(closing.stdin.write('more'), { code: 'conflict', detail: /has closed its standard input/ });
    await closing.cancel();
    const { id } = await startExec(machine.id, { command: 'sleep 1000' });
    const without = sandbar.execs.job(machine.id, id);
    await assert.rejects(without.stdin.write('x'), { code: 'conflict', detail: /without stdin_open/ });
    assert.equal((await without.signal('KILL')).id, id);
    assert.equal((await waitForExec(machine.id, id)).signal, 'SIGKILL');
  });

  it('sandbar exec -i sends what is typed at once', async () => {
    const child: ChildProcess = spawn(process.execPath, [CLI, 'exec', '-i', machine.id, '--', 'sh'], {
      env: { ...process.env, SANDBAR_BASE_URL: BASE_URL, SANDBAR_API_KEY: API_KEY },
    });
    let said = '';
    child.stdout?.on('data', (chunk) => (said += chunk));
    for (const [typed, answer] of [
      ['n=4\necho $((n * 2))\n', '8\n'],
      ['echo $((n * 3))\n', '8\n12\n'],
    ]) {
      child.stdin?.write(typed);
      await until(`the answer ${answer}`, () => said === answer);
    }
    child.stdin?.end('exit 9\n');
    assert.deepEqual(await once(child, 'close'), [9, null]);
  });

  it('a machine made from a memory snapshot has closed the stdin of the old jobs', async () => {
    const seen = '/root/stdin-ended';
    await open(['sh', '-c', `cat; touch ${seen}`]);
    const snapshot = await sandbar.snapshots.create(machine.id, { memory: true });
    const clone = await sandbar.machines.create({ snapshot_id: snapshot.id, memory_mb: machine.memory_mb });
    try {
      assert.equal((await getMachine(clone.id)).state, 'running');
      await until('the old command sees the end of its input', async () => {
        const { job } = await sandbar.execs.run(clone.id, { argv: ['test', '-e', seen] });
        return job.exit_code === 0;
      });
      const { job } = await sandbar.execs.run(machine.id, { argv: ['test', '-e', seen] });
      assert.equal(job.exit_code, 1, 'in the first machine it is open');
    } finally {
      await destroyMachine(clone.id);
      await expectStatus(204, 'DELETE', `/v1/snapshots/${snapshot.id}`);
    }
  });
});
