// Kill -9 of the control plane and of the host agent while something goes into a machine. Each kind of traffic has its
// own rule for what must come out of it. To add a kind, add an entry to KINDS.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { ExecStdin } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import type { Job } from '@sandbar/sdk/job.ts';
import { type Advance, underKills } from './support/kills.ts';
import { API_KEY, BASE_URL, createMachine, destroyMachine, sh, until } from './support/service.ts';

const MIB = 1024 * 1024;
const DOWNLOAD = 32 * MIB;
/** Three kills, each with the pause before the supervisor starts the process again, must fit into its time to retry. */
const sandbar = new Client({ baseUrl: BASE_URL, apiKey: API_KEY, retryForSec: 300 });
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

type Kind = {
  /** The statement that the test checks. */
  rule: string;
  /** Sends its traffic and calls `advance` as it goes. Throws when the rule is broken. */
  run: (machine: Machine, advance: Advance) => Promise<void>;
};

const KINDS: Kind[] = [
  { rule: 'stdin by raw requests, some of them sent three times at once: 10 MiB arrive once', run: repeatStdin },
  { rule: 'stdin by the client, which repeats by itself: 10 MiB arrive once', run: writeStdin },
  { rule: 'a terminal is joined again, and no byte of its output is lost or doubled', run: watchTerminal },
  { rule: 'a download goes on where it broke off: 32 MiB come out once', run: download },
  { rule: 'an upload that breaks off leaves the old file, and is repeated until the new one is whole', run: upload },
];

describe('kill -9 during traffic into a machine', () => {
  let machine: Machine;
  before(async () => {
    machine = await createMachine();
  });
  after(() => destroyMachine(machine.id));

  for (const { rule, run } of KINDS) {
    it(rule, () => underKills((advance) => run(machine, advance)));
  }
});

/** Starts `cat` and reads its output to the end, so that the bytes go in and come out under the kills. */
async function startCat(machine: Machine): Promise<{ job: Job; read: Promise<Buffer> }> {
  const job = await sandbar.execs.startJob(machine.id, { argv: ['cat'] }, { stdinOpen: true });
  const collect = async () => {
    const chunks: Uint8Array[] = [];
    for await (const { data } of job.output({ stream: 'stdout' })) chunks.push(data);
    return Buffer.concat(chunks);
  };
  return { job, read: collect() };
}

async function repeatStdin(machine: Machine, advance: Advance): Promise<void> {
  const { job, read } = await startCat(machine);
  const content = randomBytes(10 * MIB);
  for (let offset = 0; offset < content.length; ) {
    const piece = content.subarray(offset, offset + 1 + Math.floor(Math.random() * 200_000));
    const times = Math.random() < 0.3 ? 3 : 1;
    const answers = await Promise.all(Array.from({ length: times }, () => append(job, offset, piece, false)));
    const next = Math.max(...answers.map(({ next_offset }) => next_offset));
    assert.ok(next >= offset && next <= offset + piece.length, `${next} after ${piece.length} bytes at ${offset}`);
    offset = next;
    void advance(offset / content.length);
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

async function writeStdin(machine: Machine, advance: Advance): Promise<void> {
  const { job, read } = await startCat(machine);
  const content = randomBytes(10 * MIB);
  for (let offset = 0; offset < content.length; offset += 100_000) {
    await job.stdin.write(content.subarray(offset, offset + 100_000));
    void advance(Math.min(1, (offset + 100_000) / content.length));
  }
  await job.stdin.close();
  assert.equal(sha256(await read), sha256(content));
  assert.equal((await job.wait()).exit_code, 0);
}

async function watchTerminal(machine: Machine, advance: Advance): Promise<void> {
  const stop = '/tmp/stop';
  // 100 short lines a second: what is printed while the service is away fits into the 256 KiB that are kept.
  const program = `i=0; while ! test -e ${stop}; do echo "line $i"; i=$((i+1)); sleep 0.01; done; exit 7`;
  let gaps = 0;
  const terminal = await sandbar.terminals.open(machine.id, {
    command: ['sh', '-c', program],
    onGap: () => (gaps += 1),
  });
  let text = '';
  const reading = (async () => {
    for await (const bytes of terminal) text += Buffer.from(bytes).toString();
  })();
  // Its error is thrown below, when the program was told to stop.
  reading.catch(() => {});
  for (const share of [1 / 3, 2 / 3, 1]) {
    const { length } = text;
    await until('output', () => text.length > length + 100);
    await advance(share);
  }
  const { length } = text;
  await until('output after the last kill', () => text.length > length + 100);
  await sh(machine.id, `touch ${stop}`);
  await reading;
  const lines = text.split('\r\n');
  assert.equal(lines.pop(), '');
  assert.deepEqual(
    lines,
    lines.map((_, at) => `line ${at}`),
  );
  assert.equal(gaps, 0);
  assert.equal((await terminal.exit)?.code, 7);
}

async function download(machine: Machine, advance: Advance): Promise<void> {
  const path = '/root/download';
  const { stdout } = await sh(machine.id, `head -c ${DOWNLOAD} /dev/urandom > ${path}; sha256sum < ${path}`);
  const hash = createHash('sha256');
  let size = 0;
  for await (const bytes of sandbar.files(machine.id).stream(path)) {
    hash.update(bytes);
    size += bytes.length;
    void advance(size / DOWNLOAD);
  }
  assert.equal(size, DOWNLOAD);
  assert.equal(hash.digest('hex'), stdout.split(' ')[0]);
}

async function upload(machine: Machine, advance: Advance): Promise<void> {
  const files = sandbar.files(machine.id);
  const path = '/root/upload/file';
  await files.write(path, 'old');
  const content = randomBytes(48 * MIB);
  let attempts = 0;
  async function* pieces(): AsyncGenerator<Uint8Array> {
    attempts += 1;
    for (let at = 0; at < content.length; at += MIB) {
      void advance(at / content.length);
      yield content.subarray(at, at + MIB);
    }
  }
  let isDone = false;
  const sizes = new Set<number>();
  const watching = (async () => {
    while (!isDone) sizes.add((await files.stat(path)).size);
  })();
  // Its error is thrown below, when the upload has ended.
  watching.catch(() => {});
  await files.write(path, pieces).finally(() => {
    isDone = true;
  });
  await watching;
  assert.ok([...sizes].every((size) => size === 3 || size === content.length));
  assert.ok(attempts > 1, 'a kill hit the upload');
  assert.equal((await sh(machine.id, `sha256sum < ${path}`)).stdout.split(' ')[0], sha256(content));
  const left = (await files.list('/root/upload')).map((entry) => entry.path);
  assert.deepEqual(left, [path], 'nothing of the attempts that broke off is left');
}
