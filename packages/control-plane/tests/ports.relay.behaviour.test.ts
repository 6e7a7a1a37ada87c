// Tests how requests to ports of machines are relayed: what arrives, in both directions, and when a connection ends.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { insertKey } from '../src/api-keys/store.ts';
import { answerOf, portClient, textOf } from './support/port-client.ts';
import { until } from './support/postgres.ts';
import { Programs, RawClient } from './support/programs.ts';
import { startTestBed } from './support/test-bed.ts';

const PLACES = 8;
const bed = await startTestBed({ bounds: { portConnectionsPerAccount: PLACES } });
const { api, host, plane, keys } = bed;
const programs = new Programs(host);
const machine: string = (await api('POST', '/v1/machines')).json.id;
const { nameOf, common, open, fetchText } = portClient(bed, machine);

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
