// Tests the API over TLS with a certificate in files, through real sockets: every kind of connection, plain HTTP on the
// port, and certificates that are replaced while the service runs.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest, type RequestOptions } from 'node:https';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { TERMINAL_PROTOCOL } from '@sandbar/contract/terminal.ts';
import WebSocket, { WebSocketServer } from 'ws';
import { setPassword } from '../src/auth/password.ts';
import { readConfig } from '../src/config.ts';
import type { Pair } from '../src/tls/pair.ts';
import { makeAuthority } from './support/certificates.ts';
import { FakeTerminals } from './support/fake-terminals.ts';
import { guestEntry } from './support/guest-files.ts';
import { playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { TerminalClient } from './support/terminal-client.ts';
import { startTestBed, TEST_PASSWORD } from './support/test-bed.ts';

const folder = mkdtempSync(join(tmpdir(), 'sandbar-tls-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const NAMES = ['localhost', '127.0.0.1', '*.preview.test'];
const authority = await makeAuthority();
const { ca } = authority;
const [certFile, keyFile] = [join(folder, 'current', 'tls.crt'), join(folder, 'current', 'tls.key')];

let revision = 0;
/** Replaces both files as Kubernetes does: in a new folder, to which a symbolic link leads. */
function publish({ cert, key }: Pair): void {
  const next = `revision-${revision++}`;
  mkdirSync(join(folder, next));
  writeFileSync(join(folder, next, 'tls.crt'), cert);
  writeFileSync(join(folder, next, 'tls.key'), key);
  symlinkSync(next, join(folder, 'next'));
  renameSync(join(folder, 'next'), join(folder, 'current'));
}

publish(await authority.issue(NAMES));
const bed = await startTestBed({
  timing: { certificateMs: 20, headersMs: 1_000 },
  config: {
    tls: { kind: 'files', cert: certFile, key: keyFile },
    hstsSec: 3600,
    previewDomain: 'preview.test',
    auth: {
      publicUrl: 'https://sandbar.test',
      signUp: 'closed',
      signUpBilling: 'prepaid',
      mail: undefined,
      oidc: undefined,
    },
  },
});
const { plane, host, keys } = bed;
const { port } = plane.address;

type Answer = { status: number; headers: IncomingMessage['headers']; text: string; serial: string };

/** Sends a request over TLS on a connection of its own, and checks the certificate. */
async function call(method: string, path: string, options: RequestOptions = {}, body = ''): Promise<Answer> {
  const request = httpsRequest({
    ...{ host: '127.0.0.1', port, method, path, ca, agent: false },
    ...options,
    headers: {
      authorization: `Bearer ${keys.full}`,
      ...(body === '' ? {} : { 'content-type': 'application/json' }),
      ...(options.headers as object),
    },
  });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const serial = (response.socket as TLSSocket).getPeerCertificate().serialNumber;
  const text = Buffer.concat(await response.toArray()).toString();
  return { status: response.statusCode ?? 0, headers: response.headers, text, serial };
}

const made = await call('POST', '/v1/machines', {}, '{}');
assert.equal(made.status, 201, made.text);
const machine: string = JSON.parse(made.text).id;

describe('over TLS', () => {
  it('requests, uploads, downloads and event streams work', async () => {
    assert.equal((await call('GET', `/v1/machines/${machine}`)).status, 200);
    const content = Buffer.alloc(3 * 1024 * 1024, 'a');
    let received = 0;
    host.guestStreams['files.write'] = () => {
      const stream = playStream({});
      stream.guest.on('data', (chunk: Buffer) => {
        received += chunk.length;
      });
      stream.guest.once('end', () =>
        stream.finish({ entry: guestEntry({ size: received }), created: true, etag: 'v1' }),
      );
      return stream;
    };
    const path = `/v1/machines/${machine}/files/content?path=/root/hello.txt`;
    const upload = httpsRequest({
      ...{ host: '127.0.0.1', port, method: 'PUT', path, ca, agent: false },
      headers: { authorization: `Bearer ${keys.full}`, 'content-length': content.length },
    });
    upload.end(content);
    const [uploaded] = (await once(upload, 'response')) as [IncomingMessage];
    uploaded.resume();
    assert.deepEqual([Math.floor((uploaded.statusCode ?? 0) / 100), received], [2, content.length]);
    const job = JSON.parse((await call('POST', `/v1/machines/${machine}/execs`, {}, '{"command":"print hello"}')).text);
    const events = await call('GET', `/v1/machines/${machine}/execs/${job.id}/output`, {
      headers: { accept: 'text/event-stream' },
    });
    assert.match(events.text, new RegExp(Buffer.from('hello').toString('base64')));
  });

  it('terminals work', async () => {
    const terminals = new FakeTerminals(host);
    const session = JSON.parse((await call('POST', `/v1/machines/${machine}/terminal-session`, {}, '{}')).text);
    const url = `wss://127.0.0.1:${port}${session.ws_path}?ticket=${session.ticket}`;
    const socket = new WebSocket(url, [TERMINAL_PROTOCOL], { ca });
    const client = new TerminalClient(socket);
    await once(socket, 'open');
    await terminals.all.get(session.terminal_id)?.print('over TLS');
    await client.sees('over TLS');
    client.type('back');
    await until(() => terminals.all.get(session.terminal_id)?.input === 'back', 'the terminal has the input');
    socket.terminate();
  });

  it('ports work, also WebSockets, and machines learn that the client speaks TLS', async () => {
    const programs = new Programs(host);
    const server = await programs.serve(machine, 8000, ({ headers }, response) =>
      response.end(headers['x-forwarded-proto']),
    );
    new WebSocketServer({ server }).on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    const name = `8000-${machine}.preview.test`;
    const options = { servername: name, headers: { host: name, 'x-sandbar-key': keys.full } };
    assert.equal((await call('GET', '/', options)).text, 'https');
    const socket = new WebSocket(`wss://127.0.0.1:${port}/`, { ca, ...options });
    await once(socket, 'open');
    socket.send('echo');
    assert.equal(String((await once(socket, 'message'))[0]), 'echo');
    socket.terminate();
    const ports = JSON.parse((await call('GET', `/v1/machines/${machine}/ports`)).text).ports;
    assert.equal(ports[0].url, `https://${name}/`);
  });

  it('cookies are Secure, our own origins are https, and browsers are told to stay with HTTPS', async () => {
    await setPassword(plane.app.db, bed.accountId, TEST_PASSWORD);
    const body = JSON.stringify({ email: 'owner@example.test', password: TEST_PASSWORD });
    const signIn = await call('POST', '/v1/auth/sign-in', {}, body);
    const cookies = signIn.headers['set-cookie'] ?? [];
    assert.deepEqual([cookies.length, cookies.every((cookie) => cookie.endsWith('; Secure'))], [2, true]);
    assert.equal(signIn.headers['strict-transport-security'], 'max-age=3600');
    const cookie = cookies.map((text) => text.split(';')[0]).join('; ');
    const signOut = (origin: string) =>
      call('POST', '/v1/auth/sign-out', { headers: { authorization: '', cookie, origin } });
    assert.equal((await signOut(`http://127.0.0.1:${port}`)).status, 403);
    assert.equal((await signOut(`https://127.0.0.1:${port}`)).status, 204);
  });

  it('plain HTTP on the port gets a 400 that says so, and other bytes end', async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/machines`, { method: 'POST', body: 'x'.repeat(10_000) });
    const json = (await answer.json()) as { code: string; detail: string };
    assert.deepEqual([answer.status, json.code], [400, 'validation_error']);
    assert.match(json.detail, /HTTPS/);
    assert(answer.headers.get('x-request-id'));
    const socket = connectTcp(port, '127.0.0.1').on('error', () => undefined);
    socket.end(Buffer.from([0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]));
    socket.resume();
    await once(socket, 'close');
    assert.equal((await call('GET', '/v1/images')).status, 200);
  });

  it('a client that says nothing, or stops in the handshake, is cut off', async () => {
    const silent = connectTcp(port, '127.0.0.1').on('error', () => undefined);
    const halfway = connectTcp(port, '127.0.0.1').on('error', () => undefined);
    halfway.write(Buffer.from([0x16, 3, 1, 2, 0]));
    await Promise.all([silent, halfway].map((socket) => once(socket.resume(), 'close')));
  });
});

describe('a certificate', () => {
  it('that changes is used for new connections, and open ones go on', async () => {
    const before = (await call('GET', '/v1/images')).serial;
    const open = connectTls({ host: '127.0.0.1', port, ca });
    await once(open, 'secureConnect');
    publish(await authority.issue(NAMES));
    await until(async () => (await call('GET', '/v1/images')).serial !== before, 'new connections get the new one');
    open.write(
      `GET /v1/images HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${keys.full}\r\nconnection: close\r\n\r\n`,
    );
    assert.match(Buffer.concat(await open.toArray()).toString(), /^HTTP\/1.1 200 /);
  });

  it('that is written over in place is used too', async () => {
    const before = (await call('GET', '/v1/images')).serial;
    const { cert, key } = await authority.issue(NAMES);
    writeFileSync(keyFile, key);
    writeFileSync(certFile, cert);
    await until(async () => (await call('GET', '/v1/images')).serial !== before, 'it is used');
  });

  it('that is broken is refused with one line of the log, and the old one stays', async () => {
    const { serial } = await call('GET', '/v1/images');
    const [{ cert }, { key }] = [await authority.issue(NAMES), await authority.issue(NAMES)];
    const lines = () => bed.logged().match(/The new certificate is refused[^"]*/g) ?? [];
    for (const [pair, reason] of [
      [{ cert, key }, /the key belongs to another certificate/],
      [{ cert: 'no certificate', key }, /no certificate in PEM form/],
      [{ cert, key: 'no key' }, /no private key/],
      [{ cert: cert.replace(/[a-z]{4}/, 'AAAA'), key }, /damaged|another certificate/],
    ] as const) {
      const before = lines().length;
      publish(pair);
      await until(() => lines().length > before, 'it is refused');
      assert.match(lines().at(-1) ?? '', reason);
      assert.doesNotMatch(lines().at(-1) ?? '', /BEGIN/);
      assert.equal((await call('GET', '/v1/images')).serial, serial);
      assert.equal(lines().length, before + 1, 'one line');
    }
    rmSync(join(folder, 'current'));
    await until(() => /ENOENT/.test(lines().at(-1) ?? ''), 'missing files are reported');
    publish(await authority.issue(NAMES));
    await until(async () => (await call('GET', '/v1/images')).serial !== serial, 'a good one is used again');
  });
});

describe('the settings of TLS', () => {
  const env = {
    SANDBAR_DATABASE_URL: 'postgres://x/y',
    SANDBAR_SECRET: 'a secret of the tests that is long enough',
    SANDBAR_LISTEN: '127.0.0.1:7443',
  };
  const read = (more: Record<string, string>) => readConfig({ ...env, ...more }, true);

  it('make the addresses of the service https', () => {
    const files = { SANDBAR_TLS_CERT: '/c', SANDBAR_TLS_KEY: '/k' };
    assert.equal(read(files).auth.publicUrl, 'https://127.0.0.1:7443');
    assert.equal(read({ ...files, SANDBAR_PUBLIC_URL: 'https://a.example' }).auth.publicUrl, 'https://a.example');
    const acme = { SANDBAR_TLS_ACME_DOMAINS: 'a.example.com, b.example.com', SANDBAR_TLS_ACME_EMAIL: 'x@example.com' };
    assert.equal(read({ ...acme, SANDBAR_LISTEN: '0.0.0.0:443' }).auth.publicUrl, 'https://a.example.com');
    assert.equal(read({}).tls, undefined);
  });

  it('refuse what does not fit', () => {
    assert.throws(() => read({ SANDBAR_TLS_CERT: '/c' }), /belong together: SANDBAR_TLS_KEY is not set/);
    assert.throws(() => read({ SANDBAR_TLS_ACME_DOMAINS: 'a.example' }), /SANDBAR_TLS_ACME_EMAIL is not set/);
    for (const domains of ['*.example.com', '10.0.0.1', 'a.example,', 'localhost']) {
      assert.throws(
        () => read({ SANDBAR_TLS_ACME_DOMAINS: domains, SANDBAR_TLS_ACME_EMAIL: 'x@y' }),
        /must be domain names/,
      );
    }
  });
});
