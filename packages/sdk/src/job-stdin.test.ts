// Tests how the client writes to the stdin of a job, against a small HTTP server that accepts bytes by offset.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Client } from './client.ts';

let server: Server;
let sandbar: Client;
let accepted: Buffer;
let isClosed: boolean;
let requests: { url: string; bytes: number }[];
/**
 * What goes wrong with the next requests: each request takes the first fault of the list. `lost`: the bytes are accepted,
 * but the answer is lost. `away`: the host is unavailable. `ended`: the job has ended. `atMost`: at most this many bytes
 * are accepted.
 */
let faults: ('lost' | 'away' | 'ended' | { atMost: number })[];
/** If it is set, the server answers requests only after this promise has resolved. */
let hold: Promise<void> | undefined;

before(async () => {
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const url = request.url ?? '';
    if (request.method === 'POST') {
      answer(response, 201, { id: 'e', status: 'running', ...JSON.parse(Buffer.concat(chunks).toString()) });
      return;
    }
    const body = Buffer.concat(chunks);
    requests.push({ url, bytes: body.length });
    await hold;
    const fault = faults.shift();
    if (fault === 'away') return answer(response, 503, { code: 'host_unavailable', detail: 'away' });
    if (fault === 'ended') return answer(response, 409, { code: 'conflict', detail: 'The job has ended.' });
    const query = new URL(url, 'http://x').searchParams;
    const offset = Number(query.get('offset'));
    if (offset > accepted.length) return answer(response, 409, { code: 'conflict', detail: 'a gap' });
    const fresh = body.subarray(accepted.length - offset);
    accepted = Buffer.concat([accepted, typeof fault === 'object' ? fresh.subarray(0, fault.atMost) : fresh]);
    if (query.get('close') === 'true' && accepted.length >= offset + body.length) isClosed = true;
    if (fault === 'lost') return response.destroy();
    answer(response, 200, { next_offset: accepted.length, closed: isClosed });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  sandbar = new Client({ baseUrl: `http://127.0.0.1:${address.port}`, apiKey: 'k' });
});
after(() => server.close());
beforeEach(() => {
  accepted = Buffer.alloc(0);
  isClosed = false;
  requests = [];
  faults = [];
  hold = undefined;
});

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
const start = () => sandbar.execs.startJob('m', { argv: ['cat'] }, { stdinOpen: true });

describe('job.stdin', () => {
  it('writes bytes and text in order, and closes after them', async () => {
    const { stdin } = await start();
    await stdin.write('h\u00e9');
    await stdin.write(new Uint8Array([0, 255]));
    await stdin.close();
    await stdin.close();
    assert.deepEqual(accepted, Buffer.concat([Buffer.from('h\u00e9'), Buffer.from([0, 255])]));
    assert.ok(isClosed);
    await assert.rejects(stdin.write('x'), /closed before/);
  });

  it('sends all writes that it gets during a request together in the next request', async () => {
    const { stdin } = await start();
    const held = Promise.withResolvers<void>();
    hold = held.promise;
    const writes = [stdin.write('0')];
    while (requests.length === 0) await new Promise(setImmediate);
    for (let index = 1; index < 1000; index++) writes.push(stdin.write(`${index},`));
    assert.equal(stdin.pendingBytes, 1 + [...Array(1000).keys()].slice(1).join().length + 1);
    held.resolve();
    await Promise.all(writes);
    assert.equal(requests.length, 2);
    assert.equal(accepted.toString(), `0${[...Array(1000).keys()].slice(1).join()},`);
    assert.equal(stdin.pendingBytes, 0);
  });

  it('repeats bytes that were lost on the way, and writes no byte twice', async () => {
    const { stdin } = await start();
    faults = ['lost', 'away', { atMost: 3 }, 'lost'];
    await stdin.write('0123456789');
    faults = ['lost'];
    await stdin.close();
    assert.equal(accepted.toString(), '0123456789');
    assert.ok(isClosed);
  });

  it('sends at most 1 MiB in a request, and continues at the byte at which a slow command stopped reading', async () => {
    const { stdin } = await start();
    const content = Buffer.alloc(3_000_000, 'abcdefg');
    faults = [{ atMost: 65_536 }, { atMost: 0 }];
    await Promise.all([
      stdin.write(content.subarray(0, 1_000_000)),
      stdin.write(content.subarray(1_000_000)),
      stdin.close(),
    ]);
    assert.deepEqual(accepted, content);
    assert.ok(requests.every(({ bytes }) => bytes <= 1_048_576));
    assert.deepEqual(requests.map(({ url }) => url.includes('close=true')).lastIndexOf(true), requests.length - 1);
  });

  it('appends to the bytes with which the job was started, also through a handle of a job that already runs', async () => {
    accepted = Buffer.from('first ');
    const stdin = Buffer.from('first ').toString('base64');
    const job = await sandbar.execs.startJob('m', { argv: ['cat'], stdin }, { stdinOpen: true });
    await job.stdin.write('second ');
    const again = sandbar.execs.job('m', job.id);
    await Promise.all([again.stdin.write('third '), again.stdin.write('fourth')]);
    await again.stdin.close();
    assert.equal(accepted.toString(), 'first second third fourth');
  });

  it('fails all waiting and later writes after an error', async () => {
    const { stdin } = await start();
    faults = ['ended'];
    const writes = await Promise.allSettled([stdin.write('a'), stdin.write('b'), stdin.close()]);
    assert.ok(writes.every((write) => write.status === 'rejected' && write.reason.code === 'conflict'));
    await assert.rejects(stdin.close(), { code: 'conflict' });
    assert.equal(requests.length, 1);
  });

  it('fails a waiting write after an abort', async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const { stdin } = await sandbar.execs.startJob('m', { argv: ['cat'] }, { stdinOpen: true, signal });
    const held = Promise.withResolvers<void>();
    hold = held.promise;
    const write = stdin.write('x');
    while (requests.length === 0) await new Promise(setImmediate);
    controller.abort(new Error('enough'));
    await assert.rejects(write, { message: 'enough' });
    held.resolve();
  });

  it('job.signal sends the name of the signal', async () => {
    const job = await start();
    assert.equal(((await job.signal('INT')) as unknown as { signal: string }).signal, 'INT');
  });
});
