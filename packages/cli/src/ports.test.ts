// Tests `sandbar ports` and `sandbar forward` as a user runs them, against a server that stands in for the API.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { after, beforeEach, describe, it } from 'node:test';
import { WebSocketServer } from 'ws';

const CLI = new URL('../bin/sandbar.mjs', import.meta.url).pathname;
const MACHINE = '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20';
const PORT = {
  port: 8000,
  process: 'py\x1b[31mthon',
  protocol: 'tcp',
  url: 'http://8000-m.localhost/',
  access: 'private',
};
let asked: string[] = [];
let ports = [PORT];
const server = createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  asked.push(`${request.method} ${request.url} ${body}`.trim());
  const answer = (status: number, value: object) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  if (request.url?.endsWith('/token'))
    return answer(201, { token: 't', url: 'http://8000-m.localhost/?t', expires_at: '' });
  if (request.method === 'PUT') return answer(200, { ...PORT, ...JSON.parse(body) });
  return answer(200, { ports });
});
const webSockets = new WebSocketServer({ noServer: true });
server.on('upgrade', (request, socket, head) => {
  asked.push(`UPGRADE ${request.url}`);
  const refusal = JSON.stringify({ code: 'port_not_open', detail: 'Nothing listens on port 9.' });
  if (request.url?.includes('/9/')) {
    socket.end(
      `HTTP/1.1 502 No\r\ncontent-type: application/json\r\ncontent-length: ${refusal.length}\r\n\r\n${refusal}`,
    );
    return;
  }
  webSockets.handleUpgrade(request, socket, head, (webSocket) => {
    webSocket.on('message', (data, isBinary) => {
      if (isBinary) webSocket.send(data);
      else webSocket.close(1000);
    });
  });
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
after(() => server.close());
beforeEach(() => {
  asked = [];
  ports = [PORT];
});

const env = () => ({
  ...process.env,
  SANDBAR_BASE_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  SANDBAR_API_KEY: 'k',
});
const start = (args: string[]) => spawn(process.execPath, [CLI, ...args], { env: env() });
async function sandbar(...args: string[]) {
  const child = start(args);
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (said.stdout += chunk));
  child.stderr.on('data', (chunk) => (said.stderr += chunk));
  const [code] = await once(child, 'close');
  return { code, ...said };
}

describe('sandbar ports', () => {
  it('lists the open ports', async () => {
    const { stdout } = await sandbar('ports', MACHINE);
    const line = '8000  py\\x1b[31mthon  private  http://8000-m.localhost/';
    assert.equal(stdout, `PORT  PROGRAM${' '.repeat(9)}ACCESS   URL\n${line}\n`);
    ports = [];
    const none = await sandbar('ports', MACHINE);
    assert.deepEqual([none.stdout, none.stderr], ['', 'No open ports.\n']);
    assert.deepEqual(asked, Array(2).fill(`GET /v1/machines/${MACHINE}/ports`));
  });

  it('changes the access of a port, and prints an address with a token', async () => {
    assert.equal((await sandbar('ports', MACHINE, '8000', '--public')).stdout, 'http://8000-m.localhost/ is public\n');
    assert.equal(
      (await sandbar('ports', MACHINE, '8000', '--private')).stdout,
      'http://8000-m.localhost/ is private\n',
    );
    const { stdout } = await sandbar('ports', MACHINE, '8000', '--url', '--expires-in', '60');
    assert.equal(stdout, 'http://8000-m.localhost/?t\n');
    assert.deepEqual(asked, [
      `PUT /v1/machines/${MACHINE}/ports/8000 {"access":"public"}`,
      `PUT /v1/machines/${MACHINE}/ports/8000 {"access":"private"}`,
      `POST /v1/machines/${MACHINE}/ports/8000/token {"expires_in_sec":60}`,
    ]);
  });

  it('refuses a wrong command line', async () => {
    for (const args of [
      [MACHINE, '--public'],
      [MACHINE, '8000'],
      [MACHINE, '8000', '--public', '--url'],
      [MACHINE, '0', '--url'],
    ]) {
      assert.equal((await sandbar('ports', ...args)).code, 2, args.join(' '));
    }
    for (const pair of ['x', '1:2:3', '8000:0', '70000', ''])
      assert.equal((await sandbar('forward', MACHINE, pair)).code, 2);
    assert.deepEqual(asked, []);
  });
});

describe('sandbar forward', () => {
  it('passes connections on until it is interrupted, and resets a connection that the service refuses', async () => {
    for (const [remote, expected] of [
      [80, 'hello'],
      [9, 'ECONNRESET'],
    ] as const) {
      const child = start(['forward', MACHINE, `0:${remote}`]);
      let stderr = '';
      child.stderr.on('data', (chunk) => (stderr += chunk));
      const [line] = await once(child.stdout, 'data');
      const socket = connect({
        port: Number(/:(\d+) leads/.exec(String(line))?.[1]),
        host: '127.0.0.1',
        allowHalfOpen: true,
      });
      socket.end('hello');
      const text = await socket.toArray().then(
        (chunks) => Buffer.concat(chunks).toString(),
        (error: NodeJS.ErrnoException) => error.code,
      );
      assert.equal(text, expected);
      child.kill('SIGINT');
      assert.equal((await once(child, 'close'))[0], 130);
      assert.equal(stderr, remote === 9 ? 'sandbar: port_not_open: Nothing listens on port 9.\n' : '');
    }
    assert.deepEqual(asked.slice(0, 2), [
      `GET /v1/machines/${MACHINE}/ports`,
      `UPGRADE /v1/machines/${MACHINE}/ports/80/connect`,
    ]);
  });
});
