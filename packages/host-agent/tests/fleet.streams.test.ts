// Tests what is special about connections to a joined host: guest streams and ports over TLS, whose directions end one
// by one, and cuts, which must never look like an end.
import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request as startPlainRequest } from 'node:http';
import { request as startRequest } from 'node:https';
import { type Duplex, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { CERTIFICATE_PATHS } from '@sandbar/contract/fleet.ts';
import {
  decodeHeader,
  encodeHeader,
  GUEST_STREAM_HEADERS,
  type GuestStreamName,
} from '@sandbar/contract/guest-calls.ts';
import { HOST_PATHS, type HostEvent, PORT_UPGRADE } from '@sandbar/contract/host-api.ts';
import { createLog } from '@sandbar/logging/log.ts';
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
import { type PlayedStream, playStream } from '../../control-plane/tests/support/guest-stream.ts';
import { buildServer, type HostServices } from '../src/http/server.ts';
import { FakeHost, SPEC, until } from './support/fake-host.ts';
import { FleetHost, HOST_NAME } from './support/fleet-host.ts';

const MACHINE = '019a0000-0000-7000-8000-00000000000b';
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const MB = 1024 * 1024;
const PORT_PATH = HOST_PATHS.port.replace(':id', MACHINE).replace(':port', '80');

describe('over TLS', () => {
  let host: FleetHost;
  let machines: FakeHost;
  let server: ReturnType<typeof buildServer>;
  let nextStream: () => PlayedStream = () => playStream();

  before(async () => {
    host = await FleetHost.join();
    machines = new FakeHost();
    const registry = await machines.start();
    await registry.ensure(MACHINE, { generation: 1, desired: 'running', spec: SPEC });
    const openStream = async () => {
      const { head, duplex, result } = nextStream();
      return { head: JSON.stringify(head), duplex, result: result.then((value) => JSON.stringify(value)) };
    };
    const get = () => ({ callGuest: async (_name: string, params: string) => params, openStream });
    const fake = { get, events: registry.events, reports: () => registry.reports() };
    const services = { machines: fake, member: host.member, tracing: NO_TRACING } as unknown as HostServices;
    server = buildServer(services, createLog({ process: 'host-agent', level: 'silent' }));
    await server.ready();
    await host.listen(server.server);
  });
  after(async () => {
    await server.close();
    await host.close();
    machines.remove();
  });

  /** Sends JSON, and resolves with the status and the answer. */
  const call = async (method: string, path: string, body?: object, agent = host.agent()) => {
    const headers = body === undefined ? {} : { 'content-type': 'application/json' };
    const sent = startRequest({ agent, method, path, headers });
    sent.end(body && JSON.stringify(body));
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    const content = await text(answer);
    return { status: answer.statusCode, body: content === '' ? undefined : JSON.parse(content) };
  };

  /** Opens a guest stream on a connection of its own. */
  const open = async (name: GuestStreamName = 'files.write') => {
    const played = playStream({ head: 1 });
    nextStream = () => played;
    const { secure, tcp } = await host.connectOnTcp();
    for (const socket of [secure, tcp]) socket.on('error', () => undefined);
    const request: ClientRequest = startPlainRequest({
      createConnection: () => secure,
      method: 'POST',
      path: HOST_PATHS.guestStream.replace(':id', MACHINE).replace(':name', name),
      headers: {
        connection: 'keep-alive',
        'content-type': 'application/octet-stream',
        'transfer-encoding': 'chunked',
        [GUEST_STREAM_HEADERS.params]: encodeHeader('{}'),
      },
    });
    request.on('error', () => undefined);
    request.flushHeaders();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    assert.equal(response.statusCode, 200);
    assert.equal(decodeHeader(String(response.headers[GUEST_STREAM_HEADERS.head])), '{"head":1}');
    response.on('error', () => undefined);
    return { request, response, tcp, guest: played.guest, played };
  };
  const resultOf = (response: IncomingMessage) =>
    JSON.parse(decodeHeader(String(response.trailers[GUEST_STREAM_HEADERS.result])));

  it('calls and their errors are as on the Unix socket', async () => {
    const path = HOST_PATHS.guestCall.replace(':id', MACHINE).replace(':name', 'files.entry');
    assert.deepEqual(await call('POST', path, { path: '/ü' }), { status: 200, body: { path: '/ü' } });
    assert.equal((await call('GET', '/v1/nothing')).status, 500);
  });

  it('events arrive as they happen', async () => {
    const { events } = machines.registry;
    const listeners = events.listenerCount('event');
    const sent = startRequest({ agent: host.agent(), path: HOST_PATHS.events }).end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    let lines = '';
    answer.setEncoding('utf8').on('data', (chunk: string) => {
      lines += chunk;
    });
    const types = () =>
      lines
        .split('\n')
        .filter(Boolean)
        .map((line) => (JSON.parse(line) as HostEvent).type);
    await until('the list', () => types().includes('synced'));
    events.emit('event', { type: 'heartbeat' });
    await until('the event', () => types().includes('heartbeat'));
    sent.destroy();
    await until('the listener is gone', () => events.listenerCount('event') === listeners);
  });

  it('a certificate is renewed on an open connection, and the next connection gets the new one', async () => {
    const { status, body } = await call('POST', CERTIFICATE_PATHS.request);
    assert.equal(status, 200);
    const issued = await host.authority.sign(body.certificate_request, [HOST_NAME]);
    const refused = await call('PUT', CERTIFICATE_PATHS.certificate, { ...issued, certificate: 'x' });
    assert.deepEqual([refused.status, refused.body.code], [400, 'validation_error']);
    const before = await host.connect();
    assert.equal((await call('PUT', CERTIFICATE_PATHS.certificate, issued)).status, 204);
    const renewed = await host.connect();
    assert.equal(renewed.getPeerX509Certificate()?.toString(), new X509Certificate(issued.certificate).toString());
    assert.match(await FleetHost.askOn(before), /HTTP/);
    renewed.destroy();
  });

  describe('a guest stream', () => {
    const hashOf = async (chunks: Iterable<Buffer> | AsyncIterable<Buffer>) => {
      const hash = createHash('sha256');
      for await (const chunk of chunks) hash.update(chunk);
      return hash.digest('hex');
    };
    function* pattern(bytes: number, seed: number): Generator<Buffer> {
      for (let sent = 0; sent < bytes; sent += CHUNK.length) yield Buffer.alloc(CHUNK.length, `${seed}:${sent};`);
    }

    it('carries 20 MB each way at once, then both ends and the result', async () => {
      const { request, response, guest, played } = await open();
      const up = pipeline(Readable.from(pattern(20 * MB, 1)), request);
      const down = pipeline(Readable.from(pattern(20 * MB, 2)), guest, { end: false });
      const [atGuest, atClient] = [hashOf(guest), hashOf(response)];
      assert.equal(await atGuest, await hashOf(pattern(20 * MB, 1)));
      await down;
      played.finish({ sent: 1 });
      assert.equal(await atClient, await hashOf(pattern(20 * MB, 2)));
      assert.deepEqual(resultOf(response), { result: { sent: 1 } });
      request.destroy();
      await up.catch(() => undefined);
    });

    it('may end in the direction of the guest while the guest goes on', async () => {
      const { request, response, guest, played } = await open();
      request.end('last');
      assert.equal(await text(guest), 'last');
      guest.write('more');
      assert.equal(String((await once(response, 'data'))[0]), 'more');
      played.finish(null);
      await once(response.resume(), 'end');
      assert.deepEqual(resultOf(response), { result: null });
      request.destroy();
    });

    it('may be ended by the guest, with an error or a result, while the client is still sending', async () => {
      for (const end of ['result', 'error']) {
        const { request, response, guest, played } = await open();
        request.write(CHUNK);
        guest.write('the last bytes');
        if (end === 'result') played.finish(3);
        else {
          await once(response, 'readable');
          played.fail(new ServiceError('disk_full', 'The disk is full.'));
        }
        request.write(CHUNK);
        assert.equal(await text(response), 'the last bytes');
        const expected = { result: 3 };
        const error = { error: { code: 'disk_full', detail: 'The disk is full.' } };
        assert.deepEqual(resultOf(response), end === 'result' ? expected : error);
        request.destroy();
      }
    });

    it('that breaks in the host is cut: the answer has no end', async () => {
      const { response, guest, played } = await open();
      guest.write('some bytes');
      await once(response, 'readable');
      played.fail(new Error('the session broke'));
      await assert.rejects(text(response));
      assert.equal(response.complete, false);
    });

    /** Sends more than all buffers on the way to a guest that does not read. */
    const fill = async (request: ClientRequest, guest: Duplex) => {
      for (let sent = 0; sent < 16 * MB; sent += CHUNK.length) request.write(CHUNK);
      await until('the buffer of the guest is full', () => guest.readableLength >= guest.readableHighWaterMark);
    };

    it('that its client cuts is cut at the guest, also while the guest reads nothing', async () => {
      for (const isRead of [true, false]) {
        const { request, guest, tcp } = await open();
        const closed = once(guest, 'close');
        if (isRead) guest.resume();
        else await fill(request, guest);
        tcp.resetAndDestroy();
        await closed;
      }
    });

    it('to a port is refused, and ended, with the error of the machine', async () => {
      const { response, played } = await open('ports.connect');
      played.fail(new ServiceError('port_not_open', 'Open ports: 80 (nginx).'));
      await once(response.resume(), 'end');
      assert.equal(resultOf(response).error.code, 'port_not_open');
    });
  });

  describe('a connection to a port', () => {
    it('is a guest stream: bytes both ways, and an end that no cut looks like', async () => {
      const { request, response, guest, played } = await open('ports.connect');
      request.write('up');
      assert.equal(String((await once(guest, 'data'))[0]), 'up');
      guest.write('down');
      played.finish({});
      assert.equal(await text(response), 'down');
      assert.deepEqual(resultOf(response), { result: {} });
      request.destroy();
    });

    it('is refused as an upgrade, which could not tell a cut from an end', async () => {
      const headers = { connection: 'Upgrade', upgrade: PORT_UPGRADE };
      const sent = startRequest({ agent: host.agent(), path: PORT_PATH, headers }).end();
      const [answer] = (await once(sent, 'response')) as [IncomingMessage];
      assert.deepEqual([answer.statusCode, JSON.parse(await text(answer)).code], [400, 'validation_error']);
    });
  });

  it('all connections are cut when the agent ends', async () => {
    const { response } = await open();
    const idle = await host.connect();
    const ended = Promise.all([assert.rejects(text(response)), once(idle.resume(), 'close')]);
    await server.close();
    await host.close();
    await ended;
  });
});
