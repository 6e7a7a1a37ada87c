// Tests how requests to ports of machines are relayed: what arrives, in both directions, and what is refused.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request as openRequest, type RequestOptions } from 'node:http';
import type { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { WebSocket, WebSocketServer } from 'ws';
import { insertKey } from '../src/api-keys/store.ts';
import { until } from './support/postgres.ts';
import { Programs, RawClient } from './support/programs.ts';
import { startTestBed } from './support/test-bed.ts';

const PLACES = 8;
const bed = await startTestBed({ bounds: { portConnectionsPerAccount: PLACES } });
const { api, host, plane, keys } = bed;
const programs = new Programs(host);
const machine: string = (await api('POST', '/v1/machines')).json.id;
const nameOf = (port: number, id = machine) => `${port}-${id}.localhost:7070`;
/** The lines of a head that every raw request of these tests has. */
const common = (port: number) => `Host: ${nameOf(port)}\r\nX-Sandbar-Key: ${keys.full}\r\n`;

/** Opens a request with the key of the account. The caller ends it. */
function open(port: number, options: RequestOptions = {}) {
  const headers = { host: nameOf(port), 'x-sandbar-key': keys.full, ...(options.headers as object) };
  const { host: address, port: servicePort } = plane.address;
  return openRequest({ host: address, port: servicePort, agent: false, ...options, headers });
}

async function answerOf(request: ReturnType<typeof open>): Promise<IncomingMessage> {
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

const textOf = async (response: IncomingMessage): Promise<string> =>
  Buffer.concat(await response.toArray()).toString('latin1');

async function fetchText(port: number, options: RequestOptions = {}, body = '') {
  const request = open(port, options);
  request.end(body);
  const response = await answerOf(request);
  return { status: response.statusCode, response, text: await textOf(response) };
}

describe('a relayed request', () => {
  it('arrives with its own host name and the address of its client, and without what the client claims of those', async () => {
    await programs.serve(machine, 1001, ({ rawHeaders }, response) => response.end(JSON.stringify(rawHeaders)));
    const { text } = await fetchText(1001, {
      headers: {
        'X-Forwarded-For': '6.6.6.6',
        'x-forwarded-proto': 'https',
        'X-Forwarded-Port': '1',
        Forwarded: 'for=6.6.6.6',
        'X-Real-IP': '6.6.6.6',
        'Keep-Alive': 'timeout=9',
        'Proxy-Authorization': 'Basic eDp4',
        TE: 'trailers',
        Connection: 'close, X-Mine',
        'X-Mine': '1',
        'X-Other': ['a', 'b'],
      },
    });
    assert.deepEqual(JSON.parse(text), [
      ...['Host', nameOf(1001), 'X-Other', 'a', 'X-Other', 'b'],
      ...['X-Forwarded-For', '127.0.0.1', 'X-Forwarded-Proto', 'http', 'X-Forwarded-Host', nameOf(1001)],
      ...['Connection', 'keep-alive'],
    ]);
  });

  it('and its response have bodies of any length, chunked or not, and trailers', async () => {
    await programs.serve(machine, 1002, async (request, response) => {
      const text = await textOf(request);
      const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
      if (request.url === '/trailers') response.setHeader('trailer', 'x-sum');
      response.write(JSON.stringify({ text, length, encoding, trailers: request.trailers }));
      response.addTrailers({ 'x-sum': '7', 'set-cookie': 'a=1; Domain=localhost' });
      response.end();
    });
    const whole = await fetchText(1002, { method: 'PUT', headers: { 'content-length': '5' } }, 'hello');
    assert.deepEqual(JSON.parse(whole.text), { text: 'hello', length: '5', trailers: {} });
    const empty = await fetchText(1002, { method: 'POST', headers: { 'content-length': '0' } });
    assert.deepEqual(JSON.parse(empty.text), { text: '', length: '0', trailers: {} });
    const chunked = open(1002, {
      method: 'GET',
      path: '/trailers',
      headers: { 'transfer-encoding': 'chunked', trailer: 'x-mine' },
    });
    chunked.write('one');
    chunked.addTrailers({ 'x-mine': '1', 'x-sandbar-key': 'x', 'x-forwarded-for': '6.6.6.6' });
    chunked.end('two');
    const response = await answerOf(chunked);
    assert.deepEqual(JSON.parse(await textOf(response)), {
      text: 'onetwo',
      encoding: 'chunked',
      trailers: { 'x-mine': '1' },
    });
    assert.deepEqual(response.rawTrailers, ['x-sum', '7']);
  });

  it('gets the response as it is, but for the connection', async () => {
    await programs.serveRaw(machine, 1003, (socket) => {
      socket.once('data', () => {
        socket.write(
          'HTTP/1.1 299 Very well\r\nSet-Cookie: a=1; Domain=localhost; Path=/\r\nset-cookie: b=2;DOMAIN=.com\r\n' +
            'Set-Cookie: sandbar_session=x\r\nSet-Cookie: domain=3\r\nClear-Site-Data: "*"\r\nX-Hop: 1\r\n' +
            'Content-Security-Policy: img-src *\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\n' +
            'Content-Length: 2\r\n\r\nok',
        );
      });
    });
    const { response, text } = await fetchText(1003, { headers: { connection: 'close' } });
    assert.equal(text, 'ok');
    assert.equal(`${response.statusCode} ${response.statusMessage}`, '299 Very well');
    assert.deepEqual(response.rawHeaders, [
      ...['Set-Cookie', 'a=1; Path=/', 'set-cookie', 'b=2', 'Set-Cookie', 'domain=3'],
      ...['Content-Security-Policy', 'img-src *', 'Content-Length', '2'],
      ...['Content-Security-Policy', "frame-ancestors 'self'", 'Connection', 'close'],
    ]);
  });

  it('of the method HEAD, and one answered with 204 or 304, has no body', async () => {
    await programs.serve(machine, 1004, ({ url }, response) => {
      response.writeHead(Number(url?.slice(1)), url === '/200' ? { 'content-length': '5' } : {});
      response.end(url === '/200' ? 'hello' : undefined);
    });
    const client = new RawClient(plane);
    client.write(`HEAD /200 HTTP/1.1\r\n${common(1004)}\r\nGET /204 HTTP/1.1\r\n${common(1004)}\r\n`);
    client.write(
      `GET /304 HTTP/1.1\r\n${common(1004)}\r\nGET /200 HTTP/1.1\r\n${common(1004)}Connection: close\r\n\r\n`,
    );
    const text = await client.ended();
    assert.deepEqual(text.match(/HTTP\/1.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 204', 'HTTP/1.1 304', 'HTTP/1.1 200']);
    assert.equal(text.match(/hello/g)?.length, 1);
  });

  it('may wait for 100 Continue, which the program gives or refuses', async () => {
    const server = await programs.serve(machine, 1005, async (request, response) =>
      response.end(await textOf(request)),
    );
    server.on('checkContinue', (request: IncomingMessage, response) => {
      if (request.url === '/no') response.writeHead(417).end('no');
      else {
        response.writeContinue();
        server.emit('request', request, response);
      }
    });
    const headers = { expect: '100-continue', 'content-length': '3' };
    const asked = open(1005, { method: 'POST', headers });
    asked.flushHeaders();
    await once(asked, 'continue');
    asked.end('yes');
    assert.equal(await textOf(await answerOf(asked)), 'yes');
    const refused = open(1005, { method: 'POST', path: '/no', headers });
    refused.flushHeaders();
    refused.once('continue', () => assert.fail('the program did not ask for the body'));
    assert.equal((await answerOf(refused)).statusCode, 417);
    refused.destroy();
  });

  it('streams both ways at once, and each event as it comes', async () => {
    await programs.serve(machine, 1006, (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      request.on('data', (chunk) => response.write(`data: ${chunk}\n\n`));
      request.on('end', () => response.end());
    });
    const request = open(1006, { method: 'POST' });
    request.flushHeaders();
    const response = await answerOf(request);
    for (const word of ['one', 'two', 'three']) {
      request.write(word);
      const [chunk] = await once(response, 'data');
      assert.equal(String(chunk), `data: ${word}\n\n`);
    }
    request.end();
    await once(response, 'end');
  });

  it('that breaks off breaks off on the other side too', async () => {
    const ends: string[] = [];
    await programs.serve(machine, 1007, (request, response) => {
      if (request.method === 'GET') {
        response.writeHead(200, { 'content-length': '10' });
        response.write('half', () => response.destroy());
        return;
      }
      request.once('data', () => ends.push('begun'));
      request.on('end', () => ends.push('whole'));
      request.on('error', () => ends.push('cut'));
    });
    const down = open(1007);
    down.end();
    const response = await answerOf(down);
    await assert.rejects(textOf(response), /aborted/);
    const up = open(1007, { method: 'POST', headers: { 'transfer-encoding': 'chunked' } });
    up.on('error', () => undefined);
    up.write('half');
    await until(() => ends.length === 1, 'the program has the first bytes');
    up.destroy();
    await until(() => ends.length === 2, 'the program noticed');
    assert.deepEqual(ends, ['begun', 'cut']);
  });

  it('whose response has no length is complete when the program ends it, and not when the connection breaks', async () => {
    await programs.serveRaw(machine, 1010, (socket) => {
      socket.once('data', (data) => {
        socket.write('HTTP/1.0 200 OK\r\n\r\nthe content');
        if (String(data).startsWith('GET /whole')) socket.end();
        else setTimeout(() => socket.resetAndDestroy(), 100);
      });
    });
    assert.equal((await fetchText(1010, { path: '/whole' })).text, 'the content');
    const request = open(1010, { path: '/part' });
    request.end();
    await assert.rejects(textOf(await answerOf(request)), /aborted/);
  });

  it('uses a connection to the program again, and another one when the program has just closed it', async () => {
    const used = new Map<Socket, number>();
    await programs.serve(machine, 1008, ({ socket }, response) => {
      const count = (used.get(socket) ?? 0) + 1;
      used.set(socket, count);
      // As a program that closes an idle connection in the moment in which a request arrives.
      if (count > 3) socket.destroy();
      else response.end('ok');
    });
    for (let count = 0; count < 9; count++) assert.equal((await fetchText(1008)).text, 'ok');
    assert.deepEqual([...used.values()], [4, 4, 3]);
  });

  it('that may change something is never sent twice', async () => {
    let received = 0;
    await programs.serve(machine, 1009, ({ method }, response) => {
      if (method === 'GET') return void response.end('ok');
      received++;
      response.destroy();
    });
    await fetchText(1009);
    assert.equal((await fetchText(1009, { method: 'POST' })).status, 502);
    assert.equal(received, 1);
  });
});

describe('a request that two readers could understand differently', () => {
  const arrived: string[] = [];
  const start = async () => {
    const server = await programs.serve(machine, 1100, async (request, response) => {
      arrived.push(`${request.method} ${request.url} ${await textOf(request)}`);
      response.end('served');
    });
    server.maxHeadersCount = 0;
  };
  const smuggled = `GET /smuggled HTTP/1.1\r\n${common(1100)}\r\n`;
  const cases: [string, string][] = [
    [
      'Content-Length and Transfer-Encoding',
      `Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    ],
    [
      'Transfer-Encoding and Content-Length',
      `Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n${smuggled}`,
    ],
    ['two lengths', `Content-Length: 0\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`],
    ['a list of lengths', `Content-Length: 0, ${smuggled.length}\r\n\r\n${smuggled}`],
    ['a length with a sign', `Content-Length: +0\r\n\r\n${smuggled}`],
    ['a chunk size that is no number', `Transfer-Encoding: chunked\r\n\r\nxx\r\n${smuggled}`],
    ['a chunk size that is too large', `Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n${smuggled}`],
    ['a chunk without its line end', `Transfer-Encoding: chunked\r\n\r\n1\r\nab0\r\n\r\n${smuggled}`],
    ['another encoding', `Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['chunked twice', `Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['an encoding that hides', `Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n${smuggled}`],
    ['a line without its colon', `Transfer-Encoding chunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['a space before the colon', `Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['a folded line', `X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['a second Host', `Host: other.test\r\nContent-Length: 0\r\n\r\n`],
    ['a NUL in a value', `X-A: a\0b\r\nContent-Length: 0\r\n\r\n`],
  ];
  for (const [what, rest] of cases) {
    it(`is refused: ${what}`, async () => {
      if (arrived.length === 0) await start();
      arrived.splice(0, arrived.length, 'started');
      const client = new RawClient(plane);
      client.write(`POST /first HTTP/1.1\r\n${common(1100)}${rest}`);
      const text = await client.ended();
      assert.match(text, /^HTTP\/1\.1 4\d\d /);
      assert.doesNotMatch(text, /served/);
      assert.deepEqual(
        arrived.filter((line) => line.includes('smuggled')),
        [],
      );
    });
  }

  it('is refused: an address in place of the path', async () => {
    const client = new RawClient(plane);
    client.write(`GET http://localhost/v1/machines HTTP/1.1\r\n${common(1100)}Connection: close\r\n\r\n`);
    assert.match(await client.ended(), /^HTTP\/1\.1 400 /);
  });

  it('has the length that its head says, however many fields come before', async () => {
    const client = new RawClient(plane);
    const many = 'a:b\r\n'.repeat(2100);
    client.write(`POST /many HTTP/1.1\r\n${common(1100)}${many}Content-Length: ${smuggled.length}\r\n`);
    client.write(`Connection: close\r\n\r\n${smuggled}`);
    assert.match(await client.ended(), /^HTTP\/1\.1 200 /);
    assert.equal(arrived.at(-1), `POST /many ${smuggled}`);
  });

  it('is refused when its head has 1 MB', async () => {
    const client = new RawClient(plane);
    client.write(`GET / HTTP/1.1\r\n${common(1100)}X-Large: ${'x'.repeat(1024 * 1024)}\r\n\r\n`);
    const text = await client.ended();
    assert(text === '' || text.startsWith('HTTP/1.1 431 '), text);
    const { status } = await fetchText(1100);
    assert.equal(status, 200);
  });
});

describe('a program that does not keep to HTTP', () => {
  const bad: [string, string][] = [
    ['no HTTP at all', 'ssh 2.0-OpenSSH_9.9\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc'],
    ['a length and an encoding', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['a head of 1 MB', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(1024 * 1024)}\r\n\r\n`],
    [
      'an upgrade that nobody asked for',
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n',
    ],
    ['nothing', ''],
  ];
  for (const [index, [what, answer]] of bad.entries()) {
    it(`is 502: ${what}`, async () => {
      const port = 1200 + index;
      await programs.serveRaw(machine, port, (socket) => socket.once('data', () => socket.end(answer)));
      const { status, text } = await fetchText(port);
      assert.equal(status, 502, text);
      assert.equal(JSON.parse(text).code, 'port_not_open');
    });
  }

  it('cannot add a second response for the next client', async () => {
    await programs.serveRaw(machine, 1210, (socket) => {
      socket.on('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil');
      });
    });
    for (let count = 0; count < 5; count++) assert.notEqual((await fetchText(1210)).text, 'evil');
  });
});

describe('a port that cannot be reached', () => {
  it('is 502 with the open ports when nothing listens', async () => {
    const { status, text, response } = await fetchText(1300);
    assert.equal(status, 502);
    assert.deepEqual(JSON.parse(text), {
      detail: 'Nothing in the machine listens on port 1300. No port is open.',
      code: 'port_not_open',
    });
    assert.equal(response.headers['cache-control'], 'no-store');
  });

  it('is a page that reloads itself for browsers, which loads nothing and shows no markup of the machine', async () => {
    const connect = host.guestStreams['ports.connect'];

    host.guestStreams['ports.connect'] = () => {
      throw new ServiceError('port_not_open', 'Open ports: 80 (<script>alert(1)</script>).');
    };
    const { status, text, response } = await fetchText(1300, { headers: { accept: 'text/html,*/*' } });
    if (connect) host.guestStreams['ports.connect'] = connect;
    assert.equal(status, 502);
    assert.match(response.headers['content-type'] ?? '', /^text\/html/);
    assert.match(text, /<meta http-equiv="refresh"/);
    assert.match(text, /&lt;script&gt;/);
    assert.doesNotMatch(text, /<script|src=|href=/);
    const nonce = /<style nonce="([^"]+)">/.exec(text)?.[1];
    assert.match(String(response.headers['content-security-policy']), /^default-src 'none'; style-src 'nonce-/);
    assert(response.headers['content-security-policy']?.includes(`'nonce-${nonce}'`));
  });

  it('is 409 while the machine does not run, and 503 while its host is away', async () => {
    const id = (await api('POST', '/v1/machines')).json.id;
    await api('POST', `/v1/machines/${id}/stop`);
    const stopped = await fetchText(80, { headers: { host: nameOf(80, id) } });
    assert.equal(stopped.status, 409);
    await api('POST', `/v1/machines/${id}/start`);
    host.fault('openStream', new ServiceError('host_unavailable', 'gone'), 1);
    const away = await fetchText(80, { headers: { host: nameOf(80, id) } });
    assert.equal(away.status, 503);
    assert.doesNotMatch(away.text, /127\.0\.0\.1|\.sock|10\.83/);
  });
});

describe('a WebSocket', () => {
  const start = async (port: number) => {
    const server = await programs.serve(machine, port, (_request, response) =>
      response.writeHead(404).end('no such page'),
    );
    const webSockets = new WebSocketServer({ server, handleProtocols: () => 'chat' });
    webSockets.on('connection', (webSocket, { headers }) => {
      webSocket.on('message', (data, isBinary) => webSocket.send(isBinary ? data : `${headers.host} ${data}`));
    });
  };
  const connect = (port: number, path = '/', headers: Record<string, string> = {}) =>
    new WebSocket(`ws://${plane.address.host}:${plane.address.port}${path}`, 'chat', {
      headers: { host: nameOf(port), 'x-sandbar-key': keys.full, ...headers },
    });

  it('passes messages both ways and its close code', async () => {
    await start(1400);
    const client = connect(1400);
    await once(client, 'open');
    assert.equal(client.protocol, 'chat');
    client.send('hello');
    assert.equal(String((await once(client, 'message'))[0]), `${nameOf(1400)} hello`);
    const large = Buffer.alloc(1024 * 1024, 7);
    client.send(large);
    assert.deepEqual((await once(client, 'message'))[0], large);
    client.close(4321, 'bye');
    assert.equal((await once(client, 'close'))[0], 4321);
    await until(() => programs.sockets.size === 0, 'the connection to the program is closed');
  });

  it('that the program refuses gets its answer, and the connection takes no further request', async () => {
    await programs.serve(machine, 1401, (_request, response) => response.writeHead(403).end('refused'));
    const client = new RawClient(plane);
    const upgrade =
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n';
    client.write(`GET / HTTP/1.1\r\n${common(1401)}${upgrade}GET /v1/machines HTTP/1.1\r\n${common(1401)}\r\n`);
    const text = await client.ended();
    assert.match(text, /^HTTP\/1\.1 403 [\s\S]*refused/);
    assert.equal(text.match(/HTTP\/1\.1/g)?.length, 1);
  });

  it('needs a credential, of scope full', async () => {
    for (const [key, status] of [
      ['x', 401],
      [keys.read, 403],
      [keys.other, 404],
    ] as const) {
      const client = connect(1400, '/', { 'x-sandbar-key': key });
      const [, response] = (await once(client, 'unexpected-response')) as [unknown, IncomingMessage];
      assert.equal(response.statusCode, status);
      client.on('error', () => undefined).terminate();
    }
  });

  it('ends within a second when its key is revoked, and when the machine stops', async () => {
    const key = await insertKey(plane.app.db, bed.accountId, 'full', 'revoked soon');
    const revoked = connect(1400, '/', { 'x-sandbar-key': key });
    const kept = connect(1400);
    await Promise.all([once(revoked, 'open'), once(kept, 'open')]);
    await plane.app.db.deleteFrom('api_keys').where('name', '=', 'revoked soon').execute();
    await once(revoked, 'close');
    assert.equal(kept.readyState, WebSocket.OPEN);
    for (const socket of programs.sockets) socket.destroy();
    await once(kept, 'close');
  });

  it('is not what an offer of HTTP/2 asks for', async () => {
    const headers = {
      connection: 'Upgrade, HTTP2-Settings',
      upgrade: 'h2c',
      'http2-settings': 'AAMAAABkAAQAoAAAAAIAAAAA',
    };
    assert.equal((await fetchText(1001, { headers })).status, 200);
  });
});

describe('the connections of an account', () => {
  it('have a limit, and a slow reader makes the program wait', async () => {
    let written = 0;
    let asked = 0;
    await programs.serve(machine, 1500, (_request, response) => {
      asked++;
      const chunk = Buffer.alloc(64 * 1024);
      const send = () => {
        while (written < 256 * 1024 * 1024 && response.write(chunk)) written += chunk.length;
      };
      response.on('drain', send);
      send();
    });
    const slow = Array.from({ length: PLACES }, () => {
      const client = new RawClient(plane);
      client.socket.pause();
      client.write(`GET / HTTP/1.1\r\n${common(1500)}\r\n`);
      return client;
    });
    await until(() => asked === PLACES, 'all places are taken');
    assert.equal((await fetchText(1001)).status, 429);
    let before = -1;
    const isStill = () => {
      const isSame = written === before;
      before = written;
      return isSame || written > 128 * 1024 * 1024;
    };
    await until(isStill, 'the program waits');
    assert(written < 64 * 1024 * 1024, `the program could send ${written} bytes that nobody read`);
    assert.equal((await api('GET', '/v1/machines')).status, 200);
    for (const { socket } of slow) socket.destroy();
    await until(async () => (await fetchText(1001)).status === 200, 'the places are free');
  });

  it('to a program that never answers end when the client goes', async () => {
    const ends: string[] = [];
    await programs.serveRaw(machine, 1501, (socket) => {
      socket.once('data', () => ends.push('asked'));
      socket.once('end', () => socket.end());
      socket.once('close', () => ends.push('closed'));
    });
    const request = open(1501);
    request.on('error', () => undefined);
    request.end();
    await until(() => ends.length === 1, 'the program has the request');
    request.destroy();
    await until(() => ends.length === 2, 'the connection to the program is closed');
  });
});
