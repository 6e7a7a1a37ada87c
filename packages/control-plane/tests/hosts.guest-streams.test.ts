// Tests guest streams between the client of a host and the host agent's own HTTP server: bytes and ends in both
// directions, back-pressure, and everything that can break.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { encodeHeader, GUEST_STREAM_HEADERS } from '@sandbar/contract/guest-calls.ts';
import { createHostClient, HostUnavailable } from '../src/hosts/client.ts';
import { serveGuests } from './support/guest-agent-server.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';

const MACHINE = '019a0000-0000-7000-8000-00000000000b';
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const MB = 1024 * 1024;
/** More than all buffers between the two ends of a stream, in bytes. */
const BUFFERED_MAX = 2 * MB;

const dir = mkdtempSync(join(tmpdir(), 'sandbar-guest-streams-'));
const closers: (() => void)[] = [];
after(() => {
  for (const close of closers) close();
  rmSync(dir, { recursive: true, force: true });
});

let nextStream: (params: string) => PlayedStream | Promise<PlayedStream> = () => playStream();
let answer: (name: string, params: string) => string = (_name, params) => params;
const socketPath = join(dir, 'agent.sock');
const server = await serveGuests(socketPath, {
  callGuest: async (name, params) => answer(name, params),
  openStream: async (_name, params) => {
    const { head, duplex, result } = await nextStream(params);
    return { head: JSON.stringify(head), duplex, result: result.then((value) => JSON.stringify(value)) };
  },
});
closers.push(server.close);
const client = createHostClient({ socketPath });
closers.push(() => client.close());
const forever = new AbortController().signal;

async function open(params: object = {}, signal = forever) {
  const guest = playStream({ head: 1 });
  nextStream = () => guest;
  const stream = await client.openStream(MACHINE, 'files.write', params, signal);
  return { stream, guest };
}

/** Reads the stream, and resolves with 'end' or 'closed', whichever comes first. */
function fateOf(duplex: Duplex): Promise<string> {
  if (duplex.destroyed) return Promise.resolve(duplex.readableEnded ? 'end' : 'closed');
  const { promise, resolve } = Promise.withResolvers<string>();
  duplex.once('end', () => resolve('end'));
  duplex.once('close', () => resolve('closed'));
  duplex.resume();
  return promise;
}

/** Sends until the stream takes nothing more, because the other end does not read. Returns how many bytes it took. */
async function fill(sender: Duplex): Promise<number> {
  const other = await open();
  let sent = 0;
  const send = () => {
    do sent += CHUNK.length;
    while (sender.write(CHUNK));
  };
  sender.on('drain', send);
  send();
  // What can still move on the first stream has moved before an exchange on another stream is complete.
  for (let last = -1; last !== sent; ) {
    last = sent;
    other.stream.duplex.write('ping');
    await once(other.guest.guest, 'data');
    other.guest.guest.write('pong');
    await once(other.stream.duplex, 'data');
  }
  sender.off('drain', send);
  other.stream.duplex.destroy();
  return sent;
}

/** Pseudo-random chunks that no buffer can mix up unnoticed. */
function* pattern(bytes: number, seed: number): Generator<Buffer> {
  for (let sent = 0; sent < bytes; sent += CHUNK.length) yield Buffer.alloc(CHUNK.length, `${seed}:${sent};`);
}
async function hashOf(chunks: Iterable<Buffer> | AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of chunks) hash.update(chunk);
  return hash.digest('hex');
}

const broken = (error: unknown) => error instanceof HostUnavailable;

describe('a stream to a guest', () => {
  it('carries 100 MB each way at once, then both ends and the result', async () => {
    const bytes = 100 * MB;
    const { stream, guest } = await open();
    const answered = { sent: bytes };
    const toGuest = pipeline(Readable.from(pattern(bytes, 1)), stream.duplex);
    const toClient = (async () => {
      for (const chunk of pattern(bytes, 2)) if (!guest.guest.write(chunk)) await once(guest.guest, 'drain');
    })();
    const atClient = hashOf(stream.duplex);
    const atGuest = hashOf(guest.guest);
    // The guest reads until our direction ends; only then it ends the stream.
    assert.equal(await atGuest, await hashOf(pattern(bytes, 1)));
    await toClient;
    guest.finish(answered);
    await toGuest;
    assert.equal(await atClient, await hashOf(pattern(bytes, 2)));
    assert.deepEqual(await stream.result, answered);
  });

  it('holds back a sender whose bytes nobody reads, in each direction, and hinders no other stream', async () => {
    const { stream, guest } = await open();
    for (const sender of [stream.duplex, guest.guest]) {
      const sent = await fill(sender);
      assert(sent < BUFFERED_MAX, `${sent} bytes were taken`);
    }
    stream.duplex.destroy();
  });

  it('passes parameters and heads on that are as large as two paths of 12 KB', async () => {
    const params = { from: '%41'.repeat(4096), to: '%42'.repeat(4096) };
    const guest = playStream(params);
    nextStream = (text) => {
      assert.deepEqual(JSON.parse(text), params);
      return guest;
    };
    const stream = await client.openStream(MACHINE, 'files.write', params, forever);
    assert.deepEqual(stream.head, params);
    guest.finish(params);
    assert.equal(await fateOf(stream.duplex), 'end');
    assert.deepEqual(await stream.result, params);
  });

  it('may end in our direction while the guest goes on', async () => {
    const { stream, guest } = await open();
    stream.duplex.end('last');
    assert.equal(await hashOf(guest.guest), await hashOf([Buffer.from('last')]));
    guest.guest.write('more');
    assert.equal(String((await once(stream.duplex, 'data'))[0]), 'more');
    guest.finish(null);
    assert.equal(await fateOf(stream.duplex), 'end');
    assert.equal(await stream.result, null);
  });

  it('may be ended by the guest while we are still sending', async () => {
    const { stream, guest } = await open();
    stream.duplex.write(CHUNK);
    guest.guest.write('the last bytes');
    guest.finish({ exit_code: 3 });
    let received = '';
    for await (const chunk of stream.duplex) {
      received += chunk;
      stream.duplex.write(CHUNK);
    }
    assert.equal(received, 'the last bytes');
    assert.deepEqual(await stream.result, { exit_code: 3 });
  });

  it('that the guest ends with an error is no end, and has the error', async () => {
    const { stream, guest } = await open();
    guest.guest.write('some bytes');
    guest.fail(new ServiceError('disk_full', 'The disk is full.'));
    assert.equal(await fateOf(stream.duplex), 'closed');
    await assert.rejects(stream.result, { code: 'disk_full', message: 'The disk is full.' });
  });

  it('that breaks between host and guest is cut at our end', async () => {
    const { stream, guest } = await open();
    guest.guest.write('some bytes');
    guest.fail(new Error('the session broke'));
    assert.equal(await fateOf(stream.duplex), 'closed');
    await assert.rejects(stream.result, broken);
  });

  it('that our end cuts is cut at the guest, with the reason of the signal', async () => {
    const abort = new AbortController();
    const { stream, guest } = await open({}, abort.signal);
    stream.duplex.write('some bytes');
    await once(guest.guest, 'data');
    abort.abort(new ServiceError('unauthenticated', 'The credential has ended.'));
    assert.equal(await fateOf(guest.guest), 'closed');
    await assert.rejects(stream.result, { code: 'unauthenticated' });
    assert.equal(await fateOf(stream.duplex), 'closed');
  });

  it('that our end cuts is cut at the guest also while the guest reads nothing', async () => {
    const { stream, guest } = await open();
    await fill(stream.duplex);
    stream.duplex.destroy();
    await once(guest.guest, 'close');
  });

  it('is refused with the error of the guest, also while we are already sending', async () => {
    nextStream = async () => {
      throw new ServiceError('not_found', 'There is no such file.');
    };
    for (const size of [0, 10_000])
      await assert.rejects(client.openStream(MACHINE, 'files.write', { text: 'x'.repeat(size) }, forever), {
        code: 'not_found',
        message: 'There is no such file.',
      });
  });

  it('that is given up before the guest has opened it is cut as soon as the guest opens it', async () => {
    const abort = new AbortController();
    const { promise: asked, resolve: ask } = Promise.withResolvers<void>();
    const { promise: opened, resolve: letOpen } = Promise.withResolvers<void>();
    const guest = playStream();
    nextStream = async () => {
      ask();
      await opened;
      return guest;
    };
    const opening = client.openStream(MACHINE, 'files.write', {}, abort.signal);
    await asked;
    abort.abort(new Error('the client has gone'));
    await assert.rejects(opening, /the client has gone/);
    letOpen();
    await once(guest.guest, 'close');
    await assert.rejects(client.openStream(MACHINE, 'files.write', {}, abort.signal), /the client has gone/);
  });

  it('breaks, and does not end, when the client of the host is closed', async () => {
    const other = createHostClient({ socketPath });
    nextStream = () => playStream();
    const stream = await other.openStream(MACHINE, 'files.write', {}, forever);
    other.close();
    assert.equal(await fateOf(stream.duplex), 'closed');
    await assert.rejects(stream.result, broken);
  });
});

describe('streams of all kinds', () => {
  it('leave no connection behind: ended by the guest, with an error, cut, refused, read by nobody', async () => {
    const before = await server.connections();
    const streams = [await open(), await open(), await open(), await open()];
    for (const { stream } of streams) await fill(stream.duplex);
    const [ended, failed, broke, cut] = streams;
    ended?.guest.finish({});
    failed?.guest.fail(new ServiceError('conflict', 'no'));
    broke?.guest.fail(new Error('broken'));
    cut?.stream.duplex.destroy();
    await Promise.allSettled(streams.map(({ stream }) => stream.result));
    for (const { stream } of streams) stream.duplex.resume();
    await until(async () => (await server.connections()) <= before, 'all connections are closed');
  });
});

describe('the agent of a stream', () => {
  let agent: ChildProcess | undefined;
  after(() => agent?.kill('SIGKILL'));

  it('that is killed cuts its streams: they do not end, even while they wait for nothing', async () => {
    const path = join(dir, 'mortal.sock');
    const program = new URL('./support/guest-agent-server.ts', import.meta.url).pathname;
    agent = spawn(process.execPath, [program, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    if (agent.stdout) await once(agent.stdout, 'data');
    const mortal = createHostClient({ socketPath: path });
    closers.push(() => mortal.close());
    const idle = await mortal.openStream(MACHINE, 'files.write', {}, forever);
    const busy = await mortal.openStream(MACHINE, 'files.write', {}, forever);
    busy.duplex.write('echo');
    assert.equal(String((await once(busy.duplex, 'data'))[0]), 'echo');
    agent.kill('SIGKILL');
    for (const { duplex, result } of [idle, busy]) {
      assert.equal(await fateOf(duplex), 'closed');
      await assert.rejects(result, broken);
    }
    await assert.rejects(mortal.openStream(MACHINE, 'files.write', {}, forever), broken);
  });

  const { head, result } = GUEST_STREAM_HEADERS;
  const nonsense: [string, RequestListener][] = [
    ['without a head', (_request, response) => response.end()],
    ['with a head that is not JSON', (_request, response) => response.writeHead(200, { [head]: '!' }).end()],
    ['without a result', (_request, response) => response.writeHead(200, { [head]: encodeHeader('{}') }).end('bytes')],
    [
      'with a result in another shape',
      (_request, response) => {
        response.writeHead(200, { [head]: encodeHeader('{}'), trailer: result });
        response.addTrailers({ [result]: encodeHeader('{"error":7}') });
        response.end('bytes');
      },
    ],
    ['with a refusal that is not JSON', (_request, response) => response.writeHead(502).end('<html>')],
  ];
  for (const [index, [what, listener]] of nonsense.entries()) {
    it(`that answers ${what} breaks the stream`, async () => {
      const path = join(dir, `nonsense-${index}.sock`);
      const server = createServer(listener).listen(path);
      await once(server, 'listening');
      const odd = createHostClient({ socketPath: path });
      closers.push(() => {
        odd.close();
        server.close();
        server.closeAllConnections();
      });
      const attempt = async () => {
        const stream = await odd.openStream(MACHINE, 'files.write', {}, forever);
        stream.duplex.resume();
        await stream.result;
      };
      await assert.rejects(attempt(), broken);
    });
  }
});

describe('a call to a guest', () => {
  it('passes JSON on in both directions as it is', async () => {
    const params = { path: '/a\u0000ü', list: [1, null, { __proto__x: true }] };
    assert.deepEqual(await client.callGuest(MACHINE, 'files.entry', params), params);
  });

  it('is refused with the error of the guest', async () => {
    answer = () => {
      throw new ServiceError('port_not_open', 'Nothing listens there.');
    };
    await assert.rejects(client.callGuest(MACHINE, 'ports.list', {}), { code: 'port_not_open' });
  });

  it('is sent only once, because a guest may have acted on it when the connection breaks', async () => {
    const path = join(dir, 'dropping.sock');
    let asked = 0;
    const server = createServer((request) => {
      asked += 1;
      request.socket.destroy();
    }).listen(path);
    await once(server, 'listening');
    const dropping = createHostClient({ socketPath: path });
    await assert.rejects(dropping.callGuest(MACHINE, 'files.move', {}), broken);
    assert.equal(asked, 1);
    dropping.close();
    server.close();
    await until(() => !server.listening, 'it is closed');
  });
});
