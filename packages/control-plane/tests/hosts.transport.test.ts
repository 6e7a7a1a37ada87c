// Tests of the connection to a host: whether a request may have had an effect when the host dies, which requests are
// sent again, and unusable answers. A request certainly had no effect only if no agent ever read it.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { queryObjects } from 'node:v8';
import { createHostClient, type HostClient, HostUnavailable } from '../src/hosts/client.ts';
import { createTransport, readBytes, wasNeverSent } from '../src/hosts/transport.ts';
import { toServiceError } from '../src/http/errors.ts';

/**
 * Source of a host agent that kills itself as soon as it has read one request. Afterwards nobody listens on the socket.
 */
const MORTAL = `
const server = require('node:http').createServer((request) => {
  request.resume();
  request.on('end', () => {
    server.close();
    process.kill(process.pid, 'SIGKILL');
  });
});
server.listen(process.argv[1], () => console.log('listening'));
`;

describe('a host agent that dies', () => {
  let dir: string;
  let socketPath: string;
  let agent: ChildProcess;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sandbar-transport-'));
    socketPath = join(dir, 'agent.sock');
    agent = spawn(process.execPath, ['-e', MORTAL, socketPath], { stdio: ['ignore', 'pipe', 'inherit'] });
    if (agent.stdout) await once(agent.stdout, 'data');
  });
  after(() => {
    agent.kill('SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  });

  it('of a request that it had read may have acted, and of a later one certainly not (CTL-3)', async () => {
    const client = createHostClient({ socketPath });
    const ask = () => client.deleteVolume('0195a1b2-c3d4-7890-abcd-ef0123456789');
    const fate = (mayHaveActed: boolean) => (error: unknown) =>
      error instanceof HostUnavailable && error.mayHaveActed === mayHaveActed;
    await assert.rejects(ask(), fate(true));
    await assert.rejects(ask(), fate(false));
    client.close();
  });
});

const dir = mkdtempSync(join(tmpdir(), 'sandbar-transport-'));
const closers: (() => void)[] = [];
after(() => {
  for (const close of closers) close();
  rmSync(dir, { recursive: true, force: true });
});

/** Starts an agent that answers with `listener`. `connections` collects every connection that it accepts. */
async function listen(name: string, listener: RequestListener) {
  const socketPath = join(dir, name);
  const connections: Socket[] = [];
  // By itself, neither side closes an idle connection during a test.
  const server = createServer({ keepAliveTimeout: 60_000 }, listener).on('connection', (socket: Socket) =>
    connections.push(socket),
  );
  server.listen(socketPath);
  await once(server, 'listening');
  closers.push(() => {
    server.close();
    server.closeAllConnections();
  });
  const transport = createTransport({ socketPath });
  closers.push(() => transport.close());
  return { socketPath, connections, transport };
}

const GET = { method: 'GET', path: '/', timeoutMs: 60_000 } as const;

describe('the transport', () => {
  it('uses a connection again, and sends a request once more when the agent closes that connection', async () => {
    let asked = 0;
    const { connections, transport } = await listen('closing', (request, response) => {
      asked += 1;
      if (asked === 11) request.socket.destroy();
      else response.end(`answer ${asked}`);
    });
    const ask = async () => (await readBytes(await transport.send(GET))).toString();
    for (let at = 1; at <= 10; at++) assert.equal(await ask(), `answer ${at}`);
    // The client may use two connections, because a connection becomes free only in the next turn of the event loop.
    assert(connections.length <= 2, `${connections.length} connections`);
    assert.equal(await ask(), 'answer 12');
  });

  it('closes connections without a request on demand, and no others', async () => {
    const held: ServerResponse[] = [];
    const { connections, transport } = await listen('idle', (request, response) => {
      if (request.url === '/held') held.push(response.writeHead(200));
      else response.end('answer');
      if (request.url === '/held') response.write('begin ');
    });
    const stream = await transport.send({ method: 'GET', path: '/held' });
    await readBytes(await transport.send(GET));
    const [ofStream, idle] = connections;
    assert(ofStream && idle);
    // A connection is idle in the next turn of the event loop.
    await delay(1);
    const closed = once(idle, 'close', { signal: AbortSignal.timeout(10_000) });
    transport.closeIdle();
    await closed;
    assert.equal((await readBytes(await transport.send(GET))).toString(), 'answer', 'a new connection is opened');
    assert.equal(connections.length, 3);
    held[0]?.end('end');
    assert.equal((await readBytes(stream)).toString(), 'begin end');
  });

  it('sends a request at most twice, and says that it may have arrived', async () => {
    let asked = 0;
    const { transport } = await listen('broken', (request) => {
      asked += 1;
      request.socket.destroy();
    });
    await assert.rejects(transport.send({ ...GET, method: 'PUT', body: { a: 1 } }), (error) => !wasNeverSent(error));
    assert.equal(asked, 2);
  });

  it('knows that a request without a listener was never sent', async () => {
    const transport = createTransport({ socketPath: join(dir, 'nobody') });
    await assert.rejects(transport.send(GET), wasNeverSent);
    transport.close();
  });

  it('sends the query and a JSON body', async () => {
    const { transport } = await listen('echo', async (request, response) => {
      let text = '';
      for await (const chunk of request.setEncoding('utf8')) text += chunk;
      response.end(`${request.method} ${request.url} ${request.headers['content-type']} ${text}`);
    });
    const call = { ...GET, method: 'PUT', path: '/x', query: { n: 1, text: 'a b&c' }, body: { a: 'ü' } } as const;
    const answer = (await readBytes(await transport.send(call))).toString();
    assert.equal(answer.replace('a%20b', 'a+b'), 'PUT /x?n=1&text=a+b%26c application/json {"a":"ü"}');
  });

  it('gives up after the time of a call, and when the caller aborts it, also in the middle of an answer', async () => {
    const { transport } = await listen('slow', (request, response) => {
      if (request.url === '/half') response.write('half');
    });
    await assert.rejects(transport.send({ ...GET, timeoutMs: 50 }), { name: 'TimeoutError' });
    const abort = new AbortController();
    const half = await transport.send({ ...GET, path: '/half', signal: abort.signal });
    const waiting = transport.send({ ...GET, signal: abort.signal });
    abort.abort();
    await assert.rejects(waiting, { name: 'AbortError' });
    await assert.rejects(readBytes(half), { name: 'AbortError' });
  });

  it('keeps nothing of a request that is over, although its time-out is far away (RES-10)', async () => {
    const { transport } = await listen('many', (_request, response) => response.end('done'));
    const requests = 200;
    const abort = new AbortController();
    const before = Number(queryObjects(AbortSignal));
    for (let at = 0; at < requests; at++) await readBytes(await transport.send({ ...GET, signal: abort.signal }));
    const kept = Number(queryObjects(AbortSignal)) - before;
    assert(kept < requests / 10, `${kept} signals are left of ${requests} requests`);
  });

  it('keeps no request waiting for another one, and ends all of them when it is closed', async () => {
    const { connections, transport } = await listen('busy', (request, response) => {
      if (request.url === '/now') response.end('now');
    });
    const waiting = Array.from({ length: 30 }, () => assert.rejects(transport.send(GET)));
    assert.equal((await readBytes(await transport.send({ ...GET, path: '/now' }))).toString(), 'now');
    assert.equal(connections.length, 31);
    transport.close();
    await Promise.all(waiting);
    await assert.rejects(transport.send(GET));
  });
});

describe('an answer of the host that is not JSON', () => {
  let client: HostClient;
  const PAGE = `<html>${'x'.repeat(1000)}`;
  before(async () => {
    const { socketPath } = await listen('garbage', (request, response) => {
      if (request.method === 'DELETE') response.statusCode = 502;
      response.end(request.url === '/v1/events' ? `{"type":"synced"}\n${PAGE}\n` : PAGE);
    });
    client = createHostClient({ socketPath });
    closers.push(() => client.close());
  });
  const isTold = (status: number) => (error: unknown) =>
    error instanceof HostUnavailable &&
    error.code === 'host_unavailable' &&
    error.mayHaveActed &&
    error.cause instanceof Error &&
    error.cause.message.includes(`status ${status} and no JSON: "<html>xxx`) &&
    error.cause.message.length < 400;

  it('is host_unavailable, with the beginning of the answer for the log', () =>
    assert.rejects(client.info(), isTold(200)));

  it('is host_unavailable also as a refusal', () => assert.rejects(client.deleteVolume('v'), isTold(502)));

  it('is host_unavailable in the event stream, after the events before it', async () => {
    const types: string[] = [];
    const read = async () => {
      for await (const event of client.events(new AbortController().signal)) types.push(event.type);
    };
    await assert.rejects(read(), isTold(200));
    assert.deepEqual(types, ['synced']);
  });
});

describe('toServiceError', () => {
  it('a SyntaxError of our own code is a bug, not a bad request', () => {
    assert.equal(toServiceError(new SyntaxError('Unexpected token')).code, 'internal_error');
  });

  it('what the body parser refuses is a bad request', () => {
    const refused = Object.assign(new SyntaxError('x'), { code: 'FST_ERR_CTP_INVALID_JSON_BODY', statusCode: 400 });
    assert.equal(toServiceError(refused).code, 'validation_error');
  });
});
