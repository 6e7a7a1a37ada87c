// Tests the client of a joined host over real TLS: whom it trusts, what it knows to be unsent, and that streams and
// connections to ports tell their end from a cut.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttpServer, type IncomingMessage, request as openRequest } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe, it } from 'node:test';
import { createSecureContext, createServer as createTlsServer } from 'node:tls';
import { CONTROL_PLANE_NAME } from '@sandbar/contract/fleet.ts';
import { makeKeys, type SigningAuthority, signCertificate, toPem } from '../src/fleet/x509.ts';
import { createHostClient, type HostClient, HostUnavailable } from '../src/hosts/client.ts';
import { connectHost, NotConnected } from '../src/hosts/connect.ts';
import { wasCut } from '../src/hosts/port-socket.ts';
import type { JoinedTarget } from '../src/hosts/target.ts';
import { createTransport, readBytes, wasNeverSent } from '../src/hosts/transport.ts';
import { PortConnections } from '../src/ports/connections.ts';
import { serveGuests } from './support/guest-agent-server.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';
import { makeIdentity, makeTestAuthority, serveTls } from './support/tls-agent.ts';

const HOST_ID = '019a0000-0000-7000-8000-00000000000a';
const OTHER_ID = '019a0000-0000-7000-8000-00000000000b';
const MACHINE = '019a0000-0000-7000-8000-00000000000c';
const DAY_MS = 86_400_000;
const dir = mkdtempSync(join(tmpdir(), 'sandbar-tls-'));
const closers: (() => void)[] = [];
after(() => {
  for (const close of closers) close();
  rmSync(dir, { recursive: true, force: true });
});

const authority = await makeTestAuthority('ours');
const stranger = await makeTestAuthority('of another fleet');

/** Where a host is, for a control plane whose certificate `signer` signed and which trusts `trusted`. */
async function targetAt(port: number, signer: SigningAuthority = authority): Promise<JoinedTarget> {
  const keys = await makeKeys();
  const holder = { name: CONTROL_PLANE_NAME, role: 'client' } as const;
  const { certificate } = await signCertificate(signer, keys.publicKey, holder, 1, new Date());
  const ca = authority.certificate;
  const context = createSecureContext({ cert: certificate, key: toPem(keys.privateKey), ca, minVersion: 'TLSv1.3' });
  return { host: '127.0.0.1', port, hostId: HOST_ID, tls: async () => context };
}

/** An agent behind TLS that answers every call with the text `answer`, and knows how many calls reached it. */
async function startAgent(name: string, identity = makeIdentity(authority, HOST_ID)) {
  const socketPath = join(dir, name);
  const agent = { calls: 0, onCall: (_request: IncomingMessage): string | undefined => '{}' };
  const server = createHttpServer((request, response) => {
    agent.calls += 1;
    const answer = agent.onCall(request);
    if (answer === undefined) request.socket.destroy();
    else response.end(answer);
  });
  server.listen(socketPath);
  await once(server, 'listening');
  const tls = await serveTls(await identity, socketPath);
  closers.push(
    () => server.close(),
    () => tls.close(),
  );
  return Object.assign(agent, { tls, socketPath });
}

function clientOf(target: JoinedTarget): HostClient {
  const client = createHostClient(target);
  closers.push(() => client.close());
  return client;
}

async function listenTcp(onConnection: (socket: Socket) => void): Promise<number> {
  const server: Server = createTcpServer((socket) => onConnection(socket.on('error', () => undefined)));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

const GET = { method: 'GET', path: '/', timeoutMs: 60_000 } as const;

describe('a connection to a joined host', () => {
  it('is made with the certificate of the control plane, and is used again', async () => {
    const agent = await startAgent('answering');
    agent.onCall = ({ method, url }) => `${method} ${url}`;
    const transport = createTransport(await targetAt(agent.tls.port));
    closers.push(() => transport.close());
    for (let at = 0; at < 5; at++) assert.equal(String(await readBytes(await transport.send(GET))), 'GET /');
    assert.deepEqual(new Set(agent.tls.peers), new Set([`URI:${CONTROL_PLANE_NAME}`]));
    assert(agent.tls.peers.length <= 2, `${agent.tls.peers.length} connections for 5 requests`);
  });

  it('is refused before anything is sent when the certificate is not that of this host', async () => {
    const now = Date.now();
    for (const [name, identity] of [
      ['of-another-host', makeIdentity(authority, OTHER_ID)],
      ['of-another-fleet', makeIdentity(stranger, HOST_ID)],
      ['expired', makeIdentity(authority, HOST_ID, new Date(now - 31 * DAY_MS))],
      ['not-yet-valid', makeIdentity(authority, HOST_ID, new Date(now + DAY_MS))],
    ] as const) {
      const agent = await startAgent(name, identity);
      const client = clientOf(await targetAt(agent.tls.port));
      await assert.rejects(client.deleteVolume(MACHINE), isUnsent, name);
      const forever = new AbortController().signal;
      await assert.rejects(client.openStream(MACHINE, 'files.read', {}, forever), isUnsent, name);
      assert.equal(agent.calls, 0);
    }
  });

  it('is refused by a host that does not trust the control plane', async () => {
    const agent = await startAgent('distrusting');
    const client = clientOf(await targetAt(agent.tls.port, stranger));
    await assert.rejects(client.deleteVolume(MACHINE), HostUnavailable);
    assert.equal(agent.calls, 0);
  });

  it('is never older than TLS 1.3', async () => {
    const { key, certificate } = await makeIdentity(authority, HOST_ID);
    const server = createTlsServer({ key, cert: certificate, maxVersion: 'TLSv1.2' }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    closers.push(() => server.close());
    await assert.rejects(connectHost(await targetAt((server.address() as AddressInfo).port)), NotConnected);
  });

  it('that cannot be opened means that nothing was sent', async () => {
    const gone = createTcpServer().listen(0, '127.0.0.1');
    await once(gone, 'listening');
    const { port } = gone.address() as AddressInfo;
    gone.close();
    await once(gone, 'close');
    const target = await targetAt(port);
    const places: [string, JoinedTarget][] = [
      ['nobody listens', target],
      ['an address without a route', { ...target, host: '224.0.0.1' }],
      ['no TLS', { ...target, port: await listenTcp((socket) => socket.end('220 mail\r\n')) }],
      ['closes at once', { ...target, port: await listenTcp((socket) => socket.destroy()) }],
      ['resets at once', { ...target, port: await listenTcp((socket) => socket.resetAndDestroy()) }],
      ['no certificate of our own', { ...target, tls: () => Promise.reject(new Error('the database is away')) }],
    ];
    for (const [name, place] of places) {
      const transport = createTransport(place);
      await assert.rejects(transport.send({ ...GET, method: 'DELETE' }), wasNeverSent, name);
      transport.close();
      const client = clientOf(place);
      await assert.rejects(client.deleteVolume(MACHINE), isUnsent, name);
      await assert.rejects(client.openStream(MACHINE, 'files.read', {}, new AbortController().signal), isUnsent, name);
    }
  });

  it('is given up when the host does not answer in time', async () => {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const port = await listenTcp((socket) => socket.resume().once('close', () => resolve()));
    await assert.rejects(connectHost(await targetAt(port), 50), NotConnected);
    await closed;
  });

  it('that breaks is opened again, once, and then the request may have arrived', async () => {
    const agent = await startAgent('breaking');
    agent.onCall = () => undefined;
    const client = clientOf(await targetAt(agent.tls.port));
    await assert.rejects(
      client.deleteVolume(MACHINE),
      (error) => error instanceof HostUnavailable && error.mayHaveActed,
    );
    assert.equal(agent.calls, 2);
  });

  it('to an agent that says it is another host is refused', async () => {
    const agent = await startAgent('mistaken');
    const client = clientOf(await targetAt(agent.tls.port));
    agent.onCall = () => JSON.stringify({ host_id: OTHER_ID });
    await assert.rejects(client.info(), HostUnavailable);
    agent.onCall = () => JSON.stringify({ host_id: HOST_ID });
    assert.equal((await client.info()).host_id, HOST_ID);
  });
});

const isUnsent = (error: unknown): boolean => error instanceof HostUnavailable && !error.mayHaveActed;

describe('a stream to a guest over TLS', () => {
  it('ends each direction by itself, with the result last', async () => {
    const { client, next } = await guests;
    const guest = next();
    const { duplex, result } = await client.openStream(MACHINE, 'files.write', {}, forever);
    guest.guest.write('down');
    assert.equal(String((await once(duplex, 'data'))[0]), 'down');
    duplex.end('up');
    assert.equal(await text(guest.guest), 'up');
    // Our direction has ended, and the other one still carries bytes.
    guest.guest.write('more');
    assert.equal(String((await once(duplex, 'data'))[0]), 'more');
    guest.finish({ done: true });
    duplex.resume();
    assert.deepEqual(await result, { done: true });
  });

  it('takes no cut for an end', async () => {
    for (const cut of ['guest', 'host'] as const) {
      const { client, next, agent } = await startGuests(`cut-${cut}`);
      const guest = next();
      const { duplex, result } = await client.openStream(MACHINE, 'files.read', {}, forever);
      guest.guest.write('half');
      await once(duplex, 'data');
      let ended = false;
      duplex.once('end', () => {
        ended = true;
      });
      if (cut === 'guest') guest.fail(new Error('the machine stopped'));
      else agent.close();
      await assert.rejects(result, (error) => error instanceof HostUnavailable && error.mayHaveActed);
      assert.deepEqual([cut, ended, duplex.destroyed], [cut, false, true]);
    }
  });

  it('is cut when the client of the host is closed, also while it connects', async () => {
    const { client, next } = await startGuests('closing');
    const guest = next();
    const { result } = await client.openStream(MACHINE, 'files.read', {}, forever);
    const connecting = client.openStream(MACHINE, 'files.read', {}, forever);
    client.close();
    await assert.rejects(result, HostUnavailable);
    await assert.rejects(connecting, isUnsent);
    await until(() => guest.duplex.destroyed, 'the guest learns of it');
  });
});

describe('a connection to a port over TLS', () => {
  it('carries bytes both ways, and is complete when the program ends it', async () => {
    const { client, next } = await guests;
    const guest = next();
    const socket = await client.connectPort(MACHINE, 80, forever);
    socket.write('up');
    assert.equal(String((await once(guest.guest, 'data'))[0]), 'up');
    guest.guest.write('down');
    guest.finish({});
    assert.equal(await text(socket), 'down');
    assert.equal(wasCut(socket), false);
  });

  it('is not complete when it breaks on the side of the machine or of the host', async () => {
    for (const cut of ['machine', 'host'] as const) {
      const { client, next, agent } = await startGuests(`port-${cut}`);
      const guest = next();
      const socket = await client.connectPort(MACHINE, 80, forever);
      guest.guest.write('half');
      await once(socket, 'readable');
      if (cut === 'machine') guest.fail(new Error('the machine stopped'));
      else agent.close();
      await text(socket).catch(() => undefined);
      assert.deepEqual([cut, wasCut(socket)], [cut, true]);
    }
  });

  it('serves requests one after the other, and an answer without a length that is cut is not complete', async () => {
    const { client, next } = await startGuests('http');
    const connections = new PortConnections(({ machineId, port }) => client.connectPort(machineId, port, forever));
    const target = { accountId: '', hostId: HOST_ID, machineId: MACHINE, port: 80 };
    const get = async (): Promise<IncomingMessage> => {
      const request = openRequest({ ...connections.optionsFor(target, false), path: '/' }).end();
      request.on('error', () => undefined);
      return (await once(request, 'response'))[0];
    };
    const guest = next();
    for (const body of ['one', 'two']) {
      const answer = get();
      assert.match(String((await once(guest.guest, 'data'))[0]), /^GET \/ HTTP\/1.1/);
      guest.guest.write(`HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n${body}`);
      assert.equal(await text(await answer), body);
    }
    const asked = once(guest.guest, 'data');
    const answer = get();
    await asked;
    guest.guest.write('HTTP/1.1 200 OK\r\n\r\nhalf');
    const response = await answer;
    guest.fail(new Error('the machine stopped'));
    await text(response).catch(() => undefined);
    assert(wasCut(response.socket));
    connections.destroy();
  });
});

const forever = new AbortController().signal;

/** The host agent's own HTTP server behind TLS, with guests that the test plays. */
async function startGuests(name: string) {
  const socketPath = join(dir, name);
  let played: PlayedStream | undefined;
  const server = await serveGuests(socketPath, {
    callGuest: async () => '{}',
    openStream: async () => {
      if (!played) throw new Error('no stream is expected');
      const { head, duplex, result } = played;
      return { head: JSON.stringify(head), duplex, result: result.then((value) => JSON.stringify(value)) };
    },
  });
  const agent = await serveTls(await makeIdentity(authority, HOST_ID), socketPath);
  closers.push(server.close, () => agent.close());
  const next = (): PlayedStream => {
    played = playStream({});
    return played;
  };
  return { client: clientOf(await targetAt(agent.port)), next, agent };
}

const guests = startGuests('guests');
