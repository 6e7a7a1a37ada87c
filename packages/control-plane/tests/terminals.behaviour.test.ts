// Tests terminals up to the guest agent, which is a fake: the WebSocket, and why a connection ends.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createConnection } from 'node:net';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { TERMINAL_BOUNDS } from '@sandbar/contract/terminal.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { serverSockets } from './support/event-stream.ts';
import { FakeTerminal, FakeTerminals } from './support/fake-terminals.ts';
import { until } from './support/postgres.ts';
import { startTerminalBed } from './support/terminal-bed.ts';
import { connect, refusal, type TerminalClient } from './support/terminal-client.ts';
import { startTestBed } from './support/test-bed.ts';

const PLACES = 10;
const { bed, api, plane, second, db, terminals, machine, stopped, session, ticketOf, clients, open } =
  await startTerminalBed(PLACES);

const terminalOf = (id: string) => {
  const terminal = terminals.all.get(id);
  assert(terminal, 'the terminal is open');
  return terminal;
};
/** Sends a request that offers an upgrade, and returns the answer as it comes. */
const upgrade = async (to: string, method: string, path: string, body = '') => {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'host: x',
    `authorization: Bearer ${bed.keys.full}`,
    'connection: Upgrade',
    `upgrade: ${to}`,
    ...(body === '' ? [] : ['content-type: application/json', `content-length: ${body.length}`]),
  ];
  const socket = createConnection(plane.address.port, plane.address.host);
  clients.push({ socket: { terminate: () => socket.destroy() } });
  let text = '';
  socket.on('data', (bytes) => {
    text += bytes;
  });
  socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`);
  await until(() => socket.destroyed || /\}$|Key header$/.test(text), 'it is answered');
  return { text, socket };
};

describe('a connection to a terminal', () => {
  it('opens a terminal with the environment of the machine under that of the request', async () => {
    const { id } = await open({
      cols: 120,
      rows: 40,
      env: { BOTH: 'request' },
      cwd: '/tmp',
      user: 'nobody',
      command: ['top'],
    });
    assert.deepEqual(terminalOf(id).wanted, {
      id,
      cols: 120,
      rows: 40,
      env: { FROM: 'machine', BOTH: 'request' },
      cwd: '/tmp',
      user: 'nobody',
      command: ['top'],
      idle_sec: 600,
    });
    const { id: plain } = await open();
    const { cols, rows, command } = terminalOf(plain).wanted;
    assert.deepEqual([cols, rows, command], [80, 24, undefined]);
  });

  it('carries raw bytes both ways without a subprotocol, text frames too', async () => {
    const { client, id } = await open({}, { isFramed: false });
    assert.equal(client.socket.protocol, '');
    await terminalOf(id).print('\u001b[1mhi\u0000');
    await client.sees('\u001b[1mhi\u0000');
    client.type('ls\r');
    client.socket.send('{"type":"resize","cols":1,"rows":1}');
    await until(() => terminalOf(id).input === 'ls\r{"type":"resize","cols":1,"rows":1}', 'all is input');
    terminalOf(id).exit({ exit_code: 3 });
    assert.deepEqual(await client.ends(), { code: 1000, reason: 'The program exited with code 3.' });
    assert.deepEqual(client.messages, []);
  });

  it('has control messages with the subprotocol: start, resize and exit, in this order with the data', async () => {
    const { client, id } = await open();
    const order: string[] = [];
    client.socket.on('message', (bytes: Buffer, isBinary) =>
      order.push(isBinary ? 'data' : JSON.parse(bytes.toString()).type),
    );
    await terminalOf(id).print('hello');
    await client.sees('hello');
    client.control({ type: 'resize', cols: 132, rows: 43 });
    await until(() => terminalOf(id).size.cols === 132, 'resized');
    client.type('exit\r');
    await until(() => terminalOf(id).input.length === 5, 'typed');
    const printing = terminalOf(id).print('bye');
    terminalOf(id).exit({ exit_code: 0 });
    await printing;
    assert.deepEqual(await client.ends(), { code: 1000, reason: 'The program exited with code 0.' });
    assert.equal(client.data, 'hellobye');
    assert.deepEqual(client.messages, [
      { type: 'start', terminal_id: id, offset: 0 },
      { type: 'exit', code: 0, signal: null },
    ]);
    assert.equal(order.at(-1), 'exit');
    const killed = await open();
    terminalOf(killed.id).exit({ signal: 'SIGKILL' });
    assert.deepEqual(await killed.client.ends(), { code: 1000, reason: 'The program was ended by SIGKILL.' });
    assert.deepEqual(killed.client.messages.at(-1), { type: 'exit', code: null, signal: 'SIGKILL' });
  });

  it('works with the WebSocket of a browser', async () => {
    const { ticket, terminal_id } = await session();
    const { address } = plane;
    const url = `ws://${address.host}:${address.port}/v1/machines/${machine}/terminal?ticket=${ticket}`;
    const socket = new globalThis.WebSocket(url, 'sandbar.terminal.v1');
    socket.binaryType = 'arraybuffer';
    const got: string[] = [];
    socket.addEventListener('message', ({ data }) => {
      got.push(typeof data === 'string' ? 'text' : Buffer.from(data as ArrayBuffer).toString());
    });
    const closed = new Promise<CloseEvent>((resolve) => socket.addEventListener('close', resolve));
    await until(() => terminals.all.get(terminal_id)?.connections.size === 1, 'connected');
    await terminalOf(terminal_id).print('for a browser');
    await until(() => got.includes('for a browser'), 'the data arrives');
    terminalOf(terminal_id).exit({ exit_code: 0 });
    assert.equal((await closed).code, 1000);
    assert.deepEqual(got, ['text', 'for a browser', 'text']);
  });

  it('joins a terminal that runs, from the first byte that it still has', async () => {
    const { client, id } = await open();
    const whole = Array.from({ length: 30_000 }, (_, line) => `line ${line}\n`).join('');
    await terminalOf(id).print(whole);
    client.socket.terminate();
    await until(() => terminalOf(id).connections.size === 0, 'gone');
    const again = await open({ terminal_id: id }, {}, second);
    const offset = whole.length - TERMINAL_BOUNDS.keptBytes;
    await until(() => again.client.data.length === TERMINAL_BOUNDS.keptBytes, 'the last output');
    assert.deepEqual(again.client.messages, [{ type: 'start', terminal_id: id, offset }]);
    assert.equal(again.client.data, whole.slice(offset));
    assert.deepEqual(terminalOf(id).size, { cols: 80, rows: 24 });
    const sized = await open({ terminal_id: id.toUpperCase(), cols: 100 });
    assert.deepEqual(terminalOf(id).size, { cols: 100, rows: 24 });
    await terminalOf(id).print('both');
    await Promise.all([again.client.sees('both'), sized.client.sees('both')]);
  });

  it('is 404 for a terminal that has ended, and 409 for the 65th', async () => {
    const gone = await refusal(plane, machine, await ticketOf({ terminal_id: randomUUID() }));
    assert.deepEqual([gone.status, gone.json.code], [404, 'not_found']);
    const { id } = await open();
    for (let index = 1; index < TERMINAL_BOUNDS.perMachine; index++) {
      terminals.all.set(randomUUID(), new FakeTerminal(terminalOf(id).wanted));
    }
    const { status, json } = await refusal(plane, machine, await ticketOf());
    assert.deepEqual([status, json.code], [409, 'conflict']);
    assert.match(json.detail, /64 terminals/);
  });

  it('is 429 for an account that has too many, and every one that ends gives its place back (RES-10)', async () => {
    const { id } = await open();
    for (let index = 1; index < PLACES; index++) await open({ terminal_id: id });
    const { status, json } = await refusal(plane, machine, await ticketOf({ terminal_id: id }));
    assert.deepEqual([status, json.code], [429, 'rate_limited']);
    assert.match(json.detail, /connections to terminals/);
    for (const { socket } of clients.splice(0)) socket.terminate();
    await until(() => terminalOf(id).connections.size === 0, 'all are gone');
    await open({ terminal_id: id });
  });

  it('closes a new terminal again that it could not join', async () => {
    terminals.faults.set('terminals.attach', new ServiceError('host_unavailable', 'The host does not answer.'));
    const { status, json } = await refusal(plane, machine, await ticketOf());
    assert.deepEqual([status, json.code], [503, 'host_unavailable']);
    await until(() => terminals.all.size === 0, 'it is gone');
  });

  it('answers a malformed handshake with 400 and leaves nothing behind', async () => {
    const { id } = await open();
    const path = `/v1/machines/${machine}/terminal?ticket=${await ticketOf({ terminal_id: id })}`;
    const { text } = await upgrade('websocket', 'GET', path);
    assert.match(text, /^HTTP\/1\.1 400 Bad Request/);
    assert.match(text, /Sec-WebSocket-Key/);
    await until(() => terminalOf(id).connections.size === 1, 'the stream is cut');
  });

  it('says with 4400 that a control message is wrong, and with 1009 that a message is too long', async () => {
    for (const message of ['nonsense', '{"type":"resize","cols":0,"rows":1}', '{"type":"bell"}', '[]']) {
      const { client } = await open();
      client.socket.send(message);
      const { code, reason } = await client.ends();
      assert.equal(code, 4400, message);
      assert.match(reason, /^validation_error: A text frame must be/);
    }
    const { client } = await open();
    client.type('x'.repeat(TERMINAL_BOUNDS.messageBytes + 1));
    assert.equal((await client.ends()).code, 1009);
  });

  it('goes on when a resize fails because the terminal has just ended, and coalesces resizes', async () => {
    const { client, id } = await open();
    for (let cols = 1; cols <= 500; cols++) client.control({ type: 'resize', cols, rows: 24 });
    await until(() => terminalOf(id).size.cols === 500, 'the last one counts');
    const resizes = terminals.calls.filter((name) => name === 'terminals.resize').length;
    assert(resizes < 500, `${resizes} calls`);
  });
});

describe('a connection that is not read', () => {
  it('keeps little in memory, and the terminal waits (RES-10)', async () => {
    const { client, id } = await open();
    client.socket.pause();
    void terminalOf(id).print(Buffer.alloc(64 * 1024 * 1024, 'y'));
    const { port } = plane.address;
    const waiting = () => serverSockets(port).reduce((sum, { writableLength }) => sum + writableLength, 0);
    let taken = -1;
    await until(async () => {
      const before = taken;
      taken = terminalOf(id).taken.output;
      return taken === before && waiting() > 0;
    }, 'the terminal waits');
    assert(waiting() <= 128 * 1024, `${waiting()} bytes wait`);
    client.socket.resume();
    await until(() => client.data.length === 64 * 1024 * 1024, 'all of it arrives', 60_000);
  });

  it('is told that it was too slow when the guest gives it up, and another client is not affected', async () => {
    const { client, id } = await open();
    const { client: reader } = await open({ terminal_id: id });
    client.socket.pause();
    void terminalOf(id).print(Buffer.alloc(16 * 1024 * 1024, 'y'));
    await until(
      () => serverSockets(plane.address.port).some(({ writableLength }) => writableLength > 64 * 1024),
      'it is behind',
    );
    const [slow] = terminalOf(id).connections;
    slow?.cut(new ServiceError('conflict', 'The connection took nothing for 10 s.'));
    client.socket.resume();
    const { code, reason } = await client.ends();
    assert.equal(code, 4408);
    assert.match(reason, /^too_slow: /);
    await until(() => reader.data.length === 16 * 1024 * 1024, 'the other has all', 60_000);
  });
});

describe('a client that answers no ping', () => {
  const HEARTBEAT_MS = 1000;
  const openPinged = async () => {
    const replica = await bed.addReplica({ streamHeartbeatMs: HEARTBEAT_MS });
    return { ...(await open({}, {}, replica)), replica };
  };

  it('is gone', async () => {
    const { client, id } = await openPinged();
    await until(() => client.pings > 1, 'it is pinged');
    assert.equal(terminalOf(id).connections.size, 1);
    client.socket.pause();
    await until(() => terminalOf(id).connections.size === 0, 'it is gone');
  });

  it('waits while its terminal takes no input, and little of it is kept in memory (RES-10)', async () => {
    const { client, id, replica } = await openPinged();
    const { client: other } = await open({}, {}, replica);
    const terminal = terminalOf(id);
    for (const { guest } of terminal.connections) guest.pause();
    const total = 32 * 1024 * 1024;
    for (let sent = 0; sent < total; sent += 128 * 1024) client.type('x'.repeat(128 * 1024));
    const pings = other.pings + 4;
    await until(() => other.pings > pings, 'it would be closed by now');
    assert(client.socket.bufferedAmount > total / 2, 'most of it waits at the client');
    for (const { guest } of terminal.connections) guest.resume();
    await until(() => terminal.taken.input === total, 'all arrives', 60_000);
  });
});

describe('a connection ends', () => {
  const LEAKS = /\.sock|\/tmp|127\.0\.0\.1|10\.83|localhost|host agent/i;
  const endsWith = async (end: (id: string, client: TerminalClient) => unknown) => {
    const { client, id } = await open();
    await end(id, client);
    const close = await client.ends();
    assert(!LEAKS.test(close.reason), close.reason);
    assert.match(client.headers, /"x-request-id"/);
    assert(!LEAKS.test(client.headers), client.headers);
    return close;
  };

  it('with 4401 within moments after its API key was revoked, on every replica (RES-13)', async () => {
    const key = await insertKey(db, bed.accountId, 'full', 'revoked');
    const first = await session({}, machine, key);
    const there = await session({ terminal_id: first.terminal_id }, machine, key);
    const both = [await connect(plane, machine, first.ticket), await connect(second, machine, there.ticket)];
    const { client: stays } = await open();
    await db.deleteFrom('api_keys').where('name', '=', 'revoked').execute();
    for (const client of both) {
      assert.deepEqual(await client.ends(), { code: 4401, reason: 'unauthenticated: The credential has ended.' });
    }
    assert.equal(stays.closed, undefined);
  });

  it('with 4409 when the machine was stopped', async () => {
    const own: string = (await api('POST', '/v1/machines')).json.id;
    const client = await connect(plane, own, await ticketOf({}, own));
    const [terminal] = [...terminals.all.values()].slice(-1);
    await api('POST', `/v1/machines/${own}/stop`);
    terminal?.cut(new Error('connect ENOENT /tmp/host.sock'));
    const { code, reason } = await client.ends();
    assert.equal(code, 4409);
    assert.match(reason, /^conflict: The machine is stopped/);
  });

  it('with 1013 when the host is lost, and 1011 when the guest talks nonsense; neither tells where', async () => {
    const lost = await endsWith((id) => terminalOf(id).cut(new Error('connect ENOENT /tmp/host.sock')));
    assert.equal(lost.code, 1013);
    assert.match(lost.reason, /^host_unavailable: /);
    const nonsense = await endsWith((id) => terminalOf(id).exit({ exit_code: 'no number' as never }));
    assert.equal(nonsense.code, 1011);
    const long = await endsWith((id) => terminalOf(id).cut(new ServiceError('conflict', 'ü'.repeat(1000))));
    assert.equal(long.code, 4409);
    assert(Buffer.byteLength(long.reason) <= 123 && long.reason.endsWith('ü'));
  });

  it('with 1000 when the terminal is deleted, which then is not listed any more', async () => {
    const { client, id } = await open({ command: ['vi'] });
    const { json } = await api('GET', `/v1/machines/${machine}/terminals`, { key: bed.keys.read });
    assert.deepEqual(json, {
      terminals: [{ id, created_at: '2026-01-02T03:04:05.006Z', connections: 1, cols: 80, rows: 24, command: ['vi'] }],
    });
    assert.equal((await api('DELETE', `/v1/machines/${machine}/terminals/${id}`)).status, 204);
    assert.equal((await client.ends()).code, 1000);
    assert.deepEqual((await api('GET', `/v1/machines/${machine}/terminals`)).json, { terminals: [] });
    assert.equal((await api('DELETE', `/v1/machines/${machine}/terminals/${id}`)).status, 404);
    const byRead = await api('DELETE', `/v1/machines/${machine}/terminals/${id}`, { key: bed.keys.read });
    assert.equal(byRead.status, 403);
    assert.equal((await api('GET', `/v1/machines/${stopped}/terminals`)).status, 409);
  });

  it('with 1012 when the service shuts down, and the shutdown does not wait for it', async () => {
    const replica = await bed.addReplica();
    const { client } = await open({}, {}, replica);
    await replica.close();
    const { code, reason } = await client.ends();
    assert.equal(code, 1012);
    assert.match(reason, /^shutting_down: /);
  });
});

describe('a request that offers an upgrade', () => {
  it('is answered as without it when the path or the offer is another one', async () => {
    const { text } = await upgrade('h2c', 'POST', '/v1/machines', '{"name":"by java"}');
    assert.match(text, /^HTTP\/1\.1 201 Created/);
    assert.match(text, /"name":"by java"/);
    const { text: list, socket } = await upgrade('websocket', 'GET', '/v1/quotas');
    assert.match(list, /^HTTP\/1\.1 200 OK/);
    assert.match(list, /connection: close/i);
    await until(() => socket.destroyed || socket.readableEnded, 'its connection is closed');
    const { text: absent } = await upgrade('websocket', 'GET', '/v1/nothing');
    assert.match(absent, /^HTTP\/1\.1 404 Not Found/);
  });

  it('counts as a connection of its account for as long as it is open, and no longer', async () => {
    const few = await startTestBed({ bounds: { connectionsPerAddress: 2, connectionsPerAccount: 8 } });
    const fake = new FakeTerminals(few.host);
    const id: string = (await few.api('POST', '/v1/machines')).json.id;
    const openOne = async () => {
      const { ticket } = (await few.api('POST', `/v1/machines/${id}/terminal-session`)).json;
      const client = await connect(few.plane, id, ticket);
      clients.push(client);
      return client;
    };
    for (let index = 0; index < 12; index++) {
      const { socket } = await openOne();
      const closed = once(socket, 'close');
      socket.close();
      await closed;
    }
    fake.all.clear();
    const client = await openOne();
    // More strangers than an address may have push each other out, and never the terminal.
    for (let index = 0; index < 5; index++) {
      const stranger = createConnection(few.plane.address.port, few.plane.address.host).on('error', () => {});
      clients.push({ socket: { terminate: () => stranger.destroy() } });
      await once(stranger, 'connect');
    }
    await [...fake.all.values()][0]?.print('still here');
    await client.sees('still here');
  });
});
