// The streams between clients and the guest agent of a real machine, through all processes of the service: exact bytes of
// a large file in both directions, flat memory everywhere, and what is left when a process dies in the middle.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { type IncomingMessage, request as startRequest } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { API_KEY, BASE_URL, createMachine, destroyMachine, pidOf, residentMb, sh, until } from './support/service.ts';

const MIB = 1024 * 1024;
/** Eight times what a process may grow by. bench/files.ts carries 1 GiB. */
const SIZE = 256 * MIB;
const WARM_UP = 64 * MIB;
/** How much a process of the service may grow while a file goes through it, in MiB. */
const GROWTH_MAX_MIB = 32;
const SAMPLE_MS = 20;

/** The bytes of a file: every piece is different. */
function* pieces(size: number): Generator<Buffer> {
  for (let at = 0; at < size; at += MIB) yield Buffer.alloc(MIB, `${size}:${at};`);
}

async function hashOf(chunks: Iterable<Buffer> | AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of chunks) hash.update(chunk);
  return hash.digest('hex');
}

describe('streams to a real machine', () => {
  let machine: Machine;
  before(async () => {
    machine = await createMachine({ rootfs_size_gb: 6 });
  });
  after(() => destroyMachine(machine.id));

  const ask = (method: string, path: string) =>
    startRequest(`${BASE_URL}/v1/machines/${machine.id}/files/content?path=${path}`, {
      method,
      headers: { authorization: `Bearer ${API_KEY}` },
    });
  const answerTo = async (request: ReturnType<typeof ask>): Promise<IncomingMessage> =>
    (await once(request, 'response'))[0] as IncomingMessage;

  async function upload(path: string, size: number): Promise<void> {
    const request = ask('PUT', path);
    const answered = answerTo(request);
    await pipeline(Readable.from(pieces(size)), request);
    const response = await answered;
    let body = '';
    for await (const text of response.setEncoding('utf8')) body += text;
    assert.equal(response.statusCode, 200, body);
    assert.equal(JSON.parse(body).size, size);
  }

  async function download(path: string): Promise<string> {
    const request = ask('GET', path);
    request.end();
    const response = await answerTo(request);
    assert.equal(response.statusCode, 200);
    return hashOf(response as AsyncIterable<Buffer>);
  }

  /** Runs `work` and returns by how many MiB each process of the service has grown at most meanwhile. */
  async function growthDuring(work: () => Promise<void>): Promise<Record<string, number>> {
    const hostAgent = pidOf('host-agent');
    // Programs that confine the gateway are above it in the tree of processes, with its arguments in theirs.
    const gateway = childrenOf(hostAgent).findLast((pid) => commandOf(pid).includes('gateway'));
    assert(gateway !== undefined, 'the gateway runs');
    const pids = { 'control plane': pidOf('control-plane'), 'host agent': hostAgent, gateway };
    const most: Record<string, number> = {};
    const began = Object.entries(pids).map(([name, pid]) => [name, pid, residentMb(pid)] as const);
    const look = () => {
      for (const [name, pid, before] of began)
        most[name] = Math.max(most[name] ?? 0, Math.round(residentMb(pid) - before));
    };
    const guestBefore = await guestAgentMb();
    const timer = setInterval(look, SAMPLE_MS);
    await work().finally(() => clearInterval(timer));
    most['guest agent'] = Math.round((await guestAgentMb()) - guestBefore);
    return most;
  }

  /** The most memory that the guest agent has ever had, in MiB. It is the first process of the machine. */
  async function guestAgentMb(): Promise<number> {
    const { stdout } = await sh(machine.id, 'grep VmHWM /proc/1/status');
    return Number(/(\d+) kB/.exec(stdout)?.[1]) / 1024;
  }

  it('carry a file of 256 MiB up and down unchanged, while no process grows by more than 32 MiB', async (t) => {
    await upload('/root/warm-up', WARM_UP);
    await download('/root/warm-up');
    const report = (direction: string, began: number, growth: Record<string, number>) => {
      const rate = SIZE / 1e6 / ((performance.now() - began) / 1000);
      t.diagnostic(`${direction}: ${rate.toFixed(0)} MB/s; grew by MiB: ${JSON.stringify(growth)}`);
      for (const [name, mib] of Object.entries(growth)) assert(mib <= GROWTH_MAX_MIB, `the ${name} grew by ${mib} MiB`);
    };
    let began = performance.now();
    const up = await growthDuring(() => upload('/root/large', SIZE));
    report('up', began, up);
    began = performance.now();
    let received = '';
    const down = await growthDuring(async () => {
      received = await download('/root/large');
    });
    assert.equal(received, await hashOf(pieces(SIZE)));
    report('down', began, down);
    await sh(machine.id, 'rm /root/large /root/warm-up');
  });

  for (const name of ['host-agent', 'control-plane'] as const) {
    it(`break and do not end when the ${name} is killed, and leave the old file`, async () => {
      await upload('/root/kept', MIB);
      const kept = await hashOf(pieces(MIB));
      await sh(machine.id, 'truncate -s 4G /root/sparse');
      const uploading = ask('PUT', '/root/kept');
      const endless = Readable.from(pieces(Number.POSITIVE_INFINITY));
      const uploaded = (async () => {
        const [response] = await Promise.all([answerTo(uploading), pipeline(endless, uploading)]);
        return response.statusCode;
      })();
      const downloading = ask('GET', '/root/sparse');
      downloading.end();
      const response = await answerTo(downloading);
      const downloaded = hashOf(response as AsyncIterable<Buffer>);
      for (const fate of [uploaded, downloaded]) fate.catch(() => {});
      await until('both streams carry bytes', () => (uploading.socket?.bytesWritten ?? 0) > 8 * MIB);
      process.kill(pidOf(name), 'SIGKILL');
      await assert.rejects(downloaded, 'a cut download is an error, not a shorter file');
      const status = await uploaded.catch(() => 'cut');
      assert(status === 'cut' || status === 503, `the upload answered ${status}`);
      await until('the service answers again', async () => (await download('/root/kept')) === kept);
      await until('the guest has removed the temporary file', async () => {
        const { stdout } = await sh(machine.id, 'ls -A /root | grep -c sandbar-');
        return stdout.trim() === '0';
      });
    });
  }
});

const commandOf = (pid: number): string => readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');

/** The processes that a process has started, directly or through others. */
function childrenOf(parent: number): number[] {
  const direct = readdirSync(`/proc/${parent}/task`).flatMap((thread) =>
    readFileSync(`/proc/${parent}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
  return direct.flatMap((pid) => [pid, ...childrenOf(pid)]);
}
