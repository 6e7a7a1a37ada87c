// Ports of a real machine: programs in it are reached at host names of their own, and by a local listener.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { PortList, PortToken } from '@sandbar/contract/port.ts';
import { WebSocket } from 'ws';
import { IS_ROOT, restart } from './support/host.ts';
import { connectToService, exchange, hostOf, openPort, startProgram, visit } from './support/ports.ts';
import {
  API_KEY,
  BASE_URL,
  createMachine,
  destroyMachine,
  expectStatus,
  pidOf,
  residentMb,
  sh,
  until,
} from './support/service.ts';

const CLI = new URL('../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;
const PORT = 8000;
/** The port of a program that listens on the loopback address of the machine only. */
const LOOPBACK_PORT = 8001;

describe('ports', () => {
  let machine: Machine;
  let key: string;
  before(async () => {
    machine = await createMachine({ memory_mb: 512 });
    key = `Host: ${hostOf(machine.id, PORT)}\r\nX-Sandbar-Key: ${API_KEY}\r\n`;
    await Promise.all([startProgram(machine.id, PORT), startProgram(machine.id, LOOPBACK_PORT, '127.0.0.1')]);
  });
  after(() => destroyMachine(machine.id));

  it('are listed with the program, an address and private access', async () => {
    const { ports } = await expectStatus<PortList>(200, 'GET', `/v1/machines/${machine.id}/ports`);
    const found = ports.filter(({ port }) => port === PORT || port === LOOPBACK_PORT);
    const urlOf = (port: number) => `http://${hostOf(machine.id, port)}/`;
    assert.deepEqual(
      found,
      [PORT, LOOPBACK_PORT].map((port) => ({
        ...{ port, process: 'python3', protocol: 'tcp', url: urlOf(port), access: 'private' },
      })),
    );
  });

  it('relay requests, also to a program that listens on the loopback address only', async () => {
    for (const port of [PORT, LOOPBACK_PORT]) {
      const { status, text, headers } = await visit(machine.id, port, { path: '/a?b=%20' });
      assert.deepEqual([status, text], [200, `GET /a?b=%20 ${hostOf(machine.id, port)}`]);
      assert.deepEqual(headers['set-cookie'], ['of_program=1']);
    }
    assert.equal((await visit(machine.id, PORT, { headers: { 'x-sandbar-key': 'x' } })).status, 401);
  });

  it('relay large bodies both ways to the byte', async () => {
    const body = 'x'.repeat(8 * 1024 * 1024);
    const options = { method: 'POST', headers: { 'content-length': String(body.length) } };
    const digest = createHash('sha256').update(body).digest('hex');
    for (const port of [PORT, LOOPBACK_PORT]) {
      assert.equal((await visit(machine.id, port, options, body)).text, `${body.length} ${digest}`);
      const { text } = await visit(machine.id, port, { path: '/bytes/8000000' });
      assert.equal(text, '0123456789abcdef'.repeat(500_000));
    }
  });

  it('relay each server-sent event when it comes', async () => {
    const request = openPort(machine.id, PORT, { path: '/events' });
    request.end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    const chunks: string[] = [];
    response.on('data', (chunk) => chunks.push(String(chunk)));
    await once(response, 'end');
    assert.deepEqual(chunks, ['data: 0\n\n', 'data: 1\n\n', 'data: 2\n\n']);
  });

  it('relay WebSockets, and end them with the machine', async () => {
    const open = () =>
      new WebSocket(BASE_URL.replace('http', 'ws'), {
        headers: { host: hostOf(machine.id, PORT), 'x-sandbar-key': API_KEY },
      });
    const client = open();
    await once(client, 'open');
    for (const message of ['hello', 'x'.repeat(60_000)]) {
      client.send(message);
      assert.equal(String((await once(client, 'message'))[0]), message);
    }
    client.close(4001);
    assert.equal((await once(client, 'close'))[0], 4001);
  });

  it('open in a browser with a token', async () => {
    const path = `/v1/machines/${machine.id}/ports/${PORT}/token`;
    const { url } = await expectStatus<PortToken>(201, 'POST', path, {});
    const { search } = new URL(url);
    const none = { 'x-sandbar-key': [] as string[] };
    const redirect = await visit(machine.id, PORT, { path: `/x${search}`, headers: none });
    assert.deepEqual([redirect.status, redirect.headers.location], [302, '/x']);
    const cookie = redirect.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
    assert.equal((await visit(machine.id, PORT, { path: '/x', headers: { ...none, cookie } })).status, 200);
    assert.equal((await visit(machine.id, LOOPBACK_PORT, { headers: { ...none, cookie } })).status, 401);
  });

  it('on which nothing listens are 502 and name the open ones', async () => {
    const { status, text } = await visit(machine.id, 9);
    assert.equal(status, 502);
    assert.match(JSON.parse(text).detail, /on port 9\. Open ports: .*8000 \(python3\), 8001 \(python3\)/);
    const page = await visit(machine.id, 9, { headers: { accept: 'text/html' } });
    assert.match(page.text, /<meta http-equiv="refresh"/);
  });

  it('refuse requests that two readers could understand differently, and nothing of them arrives', async () => {
    const smuggled = `GET /smuggled HTTP/1.1\r\n${key}\r\n`;
    for (const rest of [
      `Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
      `Transfer-Encoding: chunked\r\n\r\nxx\r\n${smuggled}`,
      `Content-Length: 0\r\nContent-Length: 9\r\n\r\n${smuggled}`,
      `Host: ${hostOf(machine.id, LOOPBACK_PORT)}\r\nContent-Length: 0\r\n\r\n`,
    ]) {
      const answer = await exchange(`POST / HTTP/1.1\r\n${key}${rest}`);
      assert.match(answer, /^HTTP\/1\.1 400 /);
      assert.doesNotMatch(answer, /smuggled/);
    }
    const foreign = hostOf('019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65', PORT);
    assert.equal((await visit(machine.id, PORT, { headers: { host: foreign } })).status, 404);
    const large = await exchange(`GET / HTTP/1.1\r\n${key}X: ${'x'.repeat(1024 * 1024)}\r\n\r\n`);
    assert(large === '' || large.startsWith('HTTP/1.1 431 '));
    assert.equal((await visit(machine.id, PORT)).status, 200);
  });

  it('make a program wait for a slow reader, and serve others meanwhile', async () => {
    const processes = ['control-plane', 'host-agent'] as const;
    const before = processes.map((name) => residentMb(pidOf(name)));
    const slow = Array.from({ length: 10 }, () => {
      const socket = connectToService();
      socket.pause();
      socket.write(`GET /bytes/1000000000 HTTP/1.1\r\n${key}\r\n`);
      socket.write(`GET /never HTTP/1.1\r\n${key}\r\n`);
      return socket;
    });
    for (let count = 0; count < 20; count++) assert.equal((await visit(machine.id, PORT)).status, 200);
    const grown = processes.map((name, index) => residentMb(pidOf(name)) - (before[index] ?? 0));
    for (const socket of slow) socket.destroy();
    assert(Math.max(...grown) < 64, `the processes grew by ${grown} MB`);
  });

  it('are passed on from a local listener for any protocol, with the end of each direction', async () => {
    const server = `import socket
s = socket.create_server(("", 8002))
while True:
  c, _ = s.accept()
  data = b""
  while True:
    piece = c.recv(65536)
    if not piece: break
    data += piece
  c.sendall(data[::-1])
  c.close()`;
    await sh(machine.id, `setsid python3 -c '${server}' > /dev/null 2>&1 &`);
    const list = async () => (await expectStatus<PortList>(200, 'GET', `/v1/machines/${machine.id}/ports`)).ports;
    await until('it listens', async () => (await list()).some(({ port }) => port === 8002));
    const forward = spawn(process.execPath, [CLI, 'forward', machine.id, '0:8002']);
    try {
      const [line] = await once(forward.stdout, 'data');
      const [, port] = /^127\.0\.0\.1:(\d+) leads to port 8002/.exec(String(line)) ?? [];
      const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true });
      const sent = 'abc'.repeat(100_000);
      socket.end(sent);
      assert.equal(await textOf(socket), [...sent].reverse().join(''));
    } finally {
      forward.kill('SIGINT');
    }
    assert.equal((await once(forward, 'close'))[0], 130);
  });

  it('reach nothing of the service from inside (NET-3)', { skip: !IS_ROOT }, async () => {
    const gateway = (machine.private_ip ?? '').replace(/\.\d+\.\d+$/, '.0.1');
    const { port } = new URL(BASE_URL);
    const { code } = await sh(
      machine.id,
      `curl -sS -m 5 -H 'Host: ${hostOf(machine.id, PORT)}' http://${gateway}:${port}/`,
    );
    assert.notEqual(code, 0);
  });

  it('are reached again at once after a kill of the host agent and the control plane', { skip: !IS_ROOT }, async () => {
    await restart(['host-agent', 'control-plane'], 'SIGKILL');
    await until('the port answers', async () => (await visit(machine.id, PORT)).status === 200);
    assert.equal((await visit(machine.id, LOOPBACK_PORT)).status, 200);
  });

  it('end their connections when the machine stops, are 409 then, and work again after a start', async () => {
    const request = openPort(machine.id, PORT, { path: '/never' });
    const ended = once(request, 'response').then(
      ([response]) => (response as IncomingMessage).statusCode,
      () => 'cut',
    );
    request.end();
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/stop`);
    assert(['cut', 502, 503].includes((await ended) ?? ''));
    assert.equal((await visit(machine.id, PORT)).status, 409);
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/start`);
    assert.equal((await visit(machine.id, PORT)).status, 502);
    await startProgram(machine.id, PORT);
  });
});
