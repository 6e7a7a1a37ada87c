// Tests what the relay to ports of machines refuses: requests and answers that violate HTTP, and ports on which no
// program listens.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { portClient, textOf } from './support/port-client.ts';
import { Programs, RawClient } from './support/programs.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, plane } = bed;
const programs = new Programs(host);
const machine: string = (await api('POST', '/v1/machines')).json.id;
const { nameOf, common, fetchText } = portClient(bed, machine);

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
