// Tests connections to ports for any protocol, which clients make over a WebSocket.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { END_OF_BYTES, PORT_PROTOCOL } from '@sandbar/contract/port.ts';
import { v7 as uuidv7 } from 'uuid';
import { WebSocket } from 'ws';
import { insertKey } from '../src/api-keys/store.ts';
import { until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { startTestBed, TEST_ORIGIN } from './support/test-bed.ts';

const PLACES = 4;
const bed = await startTestBed({ bounds: { portConnectionsPerAccount: PLACES } });
const { api, host, plane, keys } = bed;
const programs = new Programs(host);
const machine: string = (await api('POST', '/v1/machines')).json.id;

type Options = { key?: string; id?: string; headers?: Record<string, string> };
function open(port: number, { key = keys.full, id = machine, headers }: Options = {}): WebSocket {
  const url = `ws://${plane.address.host}:${plane.address.port}/v1/machines/${id}/ports/${port}/connect`;
  const socket = new WebSocket(url, PORT_PROTOCOL, { headers: headers ?? { authorization: `Bearer ${key}` } });
  return socket.on('error', () => undefined);
}
const connected = async (port: number, options?: Options): Promise<WebSocket> => {
  const socket = open(port, options);
  await once(socket, 'open');
  return socket;
};
const refusal = async (socket: WebSocket): Promise<number | undefined> =>
  ((await once(socket, 'unexpected-response')) as [unknown, IncomingMessage])[1].statusCode;
async function readAll(socket: WebSocket): Promise<{ text: string; code: number; reason: string }> {
  let text = '';
  socket.on('message', (data) => {
    text += String(data);
  });
  const [code, reason] = (await once(socket, 'close')) as [number, Buffer];
  return { text, code, reason: reason.toString() };
}

describe('a connection to a port', () => {
  it('carries bytes both ways, and the end of each direction', async () => {
    await programs.serveRaw(machine, 22, async (socket) => {
      const text = Buffer.concat(await socket.toArray()).toString();
      socket.end(text.toUpperCase());
    });
    const socket = await connected(22);
    assert.equal(socket.protocol, PORT_PROTOCOL);
    const reading = readAll(socket);
    socket.send(Buffer.from('one '));
    socket.send(Buffer.from('two'));
    socket.send(END_OF_BYTES);
    assert.deepEqual(await reading, { text: 'ONE TWO', code: 1000, reason: '' });
  });

  it('is closed at once after the end, also when the program was slow to read', async () => {
    const size = 64 * 1024 * 1024;
    await programs.serveRaw(machine, 25, async (socket) => {
      let read = 0;
      for await (const chunk of socket) read += (chunk as Buffer).length;
      socket.end(String(read));
    });
    const socket = await connected(25);
    const reading = readAll(socket);
    const answered = once(socket, 'message');
    for (let sent = 0; sent < size; sent += 1024 * 1024) socket.send(Buffer.alloc(1024 * 1024));
    socket.send(END_OF_BYTES);
    await answered;
    const answeredAt = performance.now();
    assert.deepEqual(await reading, { text: String(size), code: 1000, reason: '' });
    // A WebSocket whose closing handshake does not complete stays open for 30 s. Measure from the answer, so that the
    // transfer of the bytes does not count.
    assert(performance.now() - answeredAt < 20_000);
  });

  it('makes each side wait while the other takes nothing', async () => {
    let written = 0;
    let isEnough = false;
    let program: Socket | undefined;
    await programs.serveRaw(machine, 23, (socket) => {
      program = socket;
      const chunk = Buffer.alloc(64 * 1024);
      const send = () => {
        while (!isEnough && written < 256 * 1024 * 1024 && socket.write(chunk)) written += chunk.length;
      };
      socket.on('drain', send);
      send();
    });
    const socket = await connected(23);
    socket.pause();
    let before = -1;
    await until(() => {
      const isStill = written > 0 && written === before;
      before = written;
      return isStill;
    }, 'the program waits');
    assert(written < 64 * 1024 * 1024, `${written} bytes were read that nobody took`);
    // Only the other direction is of interest from here on, so the program sends nothing more.
    isEnough = true;
    socket.resume();
    const chunk = Buffer.alloc(64 * 1024);
    for (let count = 0; count < 1024; count++) socket.send(chunk);
    await until(() => socket.bufferedAmount > 0, 'the client waits');
    assert(socket.bufferedAmount > 16 * 1024 * 1024, 'what the program does not read waits at the client');
    program?.resume();
    await until(() => socket.bufferedAmount === 0, 'the program has read everything', 120_000);
    socket.terminate();
    await until(() => programs.sockets.size === 0, 'the connection to the program is closed');
  });

  it('is refused before it opens: credential, scope, account, origin, state, port', async () => {
    assert.equal(await refusal(open(22, { headers: {} })), 401);
    assert.equal(await refusal(open(22, { key: keys.read })), 403);
    assert.equal(await refusal(open(22, { key: keys.other })), 404);
    assert.equal(await refusal(open(22, { id: uuidv7() })), 404);
    assert.equal(await refusal(open(70_000)), 404);
    assert.equal(await refusal(open(9)), 502);
    const authorization = `Bearer ${keys.full}`;
    const origin = `http://8000-${machine}.localhost:7070`;
    assert.equal(await refusal(open(22, { headers: { authorization, origin } })), 403);
    const id = (await api('POST', '/v1/machines')).json.id;
    await api('POST', `/v1/machines/${id}/stop`);
    assert.equal(await refusal(open(22, { id })), 409);
    assert.equal((await api('GET', `/v1/machines/${machine}/ports/22/connect`)).status, 400);
  });

  it('with a session needs a page of the dashboard', async () => {
    const cookie = await bed.session();
    assert.equal(await refusal(open(22, { headers: { cookie } })), 403);
    assert.equal(await refusal(open(22, { headers: { cookie, origin: `http://8000-${machine}.localhost` } })), 403);
    const socket = await connected(22, { headers: { cookie, origin: TEST_ORIGIN } });
    socket.terminate();
  });

  it('ends with the credential, and says so', async () => {
    const key = await insertKey(plane.app.db, bed.accountId, 'full', 'ends soon');
    const socket = await connected(22, { key });
    const reading = readAll(socket);
    await plane.app.db.deleteFrom('api_keys').where('name', '=', 'ends soon').execute();
    const { code, reason } = await reading;
    assert.equal(code, 4401);
    assert.match(reason, /^unauthenticated: /);
  });

  it('ends when the program breaks it, and when the client says something else than bytes', async () => {
    await programs.serveRaw(machine, 24, (socket) => socket.once('data', () => socket.resetAndDestroy()));
    const broken = await connected(24);
    const reading = readAll(broken);
    broken.send(Buffer.from('x'));
    assert.notEqual((await reading).code, 1000);
    const wrong = await connected(22);
    wrong.send('hello');
    assert.equal((await readAll(wrong)).code, 1003);
  });

  it('counts for the account', async () => {
    const sockets = await Promise.all(Array.from({ length: PLACES }, () => connected(22)));
    assert.equal(await refusal(open(22)), 429);
    for (const socket of sockets) socket.terminate();
    const isFree = async () => {
      const socket = open(22);
      const isOpen = await Promise.race([once(socket, 'open').then(() => true), refusal(socket).then(() => false)]);
      socket.terminate();
      return isOpen;
    };
    await until(isFree, 'the places are free');
  });
});
