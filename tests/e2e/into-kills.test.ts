// Kill -9 of the control plane and of the host agent while something goes into a machine. Each kind of traffic has its
// own rule for what must come out of it. To add a kind, add an entry to KINDS.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { ExecStdin } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Sandbar } from '@sandbar/sdk/client.ts';
import type { Job } from '@sandbar/sdk/job.ts';
import { underKills } from './support/kills.ts';
import { API_KEY, BASE_URL, createMachine, destroyMachine, until } from './support/service.ts';

const MIB = 1024 * 1024;
const sandbar = new Sandbar({ baseUrl: BASE_URL, apiKey: API_KEY });
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

type Kind = {
  /** The statement that the test checks. */
  rule: string;
  kills: number;
  /** Sends its traffic and calls `advance` with the share that is done. Throws when the rule is broken. */
  run: (machine: Machine, advance: (share: number) => void) => Promise<void>;
};

const KINDS: Kind[] = [
  {
    rule: 'stdin by raw requests, some of them sent three times at once: 10 MiB arrive once',
    kills: 6,
    run: repeatStdin,
  },
  { rule: 'stdin by the client, which repeats by itself: 10 MiB arrive once', kills: 3, run: writeStdin },
];

describe('kill -9 during traffic into a machine', () => {
  let machine: Machine;
  before(async () => {
    machine = await createMachine();
  });
  after(() => destroyMachine(machine.id));

  for (const { rule, kills, run } of KINDS) {
    it(rule, () => underKills(kills, (advance) => run(machine, advance)));
  }
});

/** Starts `cat` and reads its output to the end, so that the bytes go in and come out under the kills. */
async function startCat(machine: Machine): Promise<{ job: Job; read: Promise<Buffer> }> {
  const job = await sandbar.execs.startJob(machine.id, { argv: ['cat'] }, { stdinOpen: true });
  const collect = async () => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of job.output('stdout')) chunks.push(chunk);
    return Buffer.concat(chunks);
  };
  return { job, read: collect() };
}

async function repeatStdin(machine: Machine, advance: (share: number) => void): Promise<void> {
  const { job, read } = await startCat(machine);
  const content = randomBytes(10 * MIB);
  for (let offset = 0; offset < content.length; ) {
    const piece = content.subarray(offset, offset + 1 + Math.floor(Math.random() * 200_000));
    const times = Math.random() < 0.3 ? 3 : 1;
    const answers = await Promise.all(Array.from({ length: times }, () => append(job, offset, piece, false)));
    const next = Math.max(...answers.map(({ next_offset }) => next_offset));
    assert.ok(next >= offset && next <= offset + piece.length, `${next} after ${piece.length} bytes at ${offset}`);
    offset = next;
    advance(offset / content.length);
  }
  await append(job, content.length, new Uint8Array(), true);
  assert.equal(sha256(await read), sha256(content));
}

/** Sends the request until it is answered. Nobody knows whether an earlier one, which was not, has written its bytes. */
async function append(job: Job, offset: number, bytes: Uint8Array, close: boolean): Promise<ExecStdin> {
  let answer: { status: number; text: string } | undefined;
  await until('an answer other than 503', async () => {
    const response = await fetch(
      `${BASE_URL}/v1/machines/${job.machineId}/execs/${job.id}/stdin?offset=${offset}&close=${close}`,
      { method: 'PUT', headers: { authorization: `Bearer ${API_KEY}` }, body: new Uint8Array(bytes) },
    );
    answer = { status: response.status, text: await response.text() };
    return answer.status !== 503;
  });
  assert.equal(answer?.status, 200, answer?.text);
  return JSON.parse(answer?.text ?? '') as ExecStdin;
}

async function writeStdin(machine: Machine, advance: (share: number) => void): Promise<void> {
  const { job, read } = await startCat(machine);
  const content = randomBytes(10 * MIB);
  for (let offset = 0; offset < content.length; offset += 100_000) {
    await job.stdin.write(content.subarray(offset, offset + 100_000));
    advance(Math.min(1, (offset + 100_000) / content.length));
  }
  await job.stdin.close();
  assert.equal(sha256(await read), sha256(content));
  assert.equal((await job.wait()).exit_code, 0);
}
