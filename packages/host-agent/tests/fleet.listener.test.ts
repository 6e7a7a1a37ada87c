// Tests who may talk to the agent of a joined host, with real TLS.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as startRequest } from 'node:http';
import { request as startSecureRequest } from 'node:https';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { CONTROL_PLANE_NAME } from '@sandbar/contract/fleet.ts';
import { TestAuthority } from './support/authority.ts';
import { FleetHost, HOST_NAME } from './support/fleet-host.ts';

describe('the agent of a joined host', () => {
  let host: FleetHost;
  let asked = 0;
  const http = createServer((_request, response) => {
    asked += 1;
    response.end('hello');
  });
  before(async () => {
    host = await FleetHost.join();
    await host.listen(http);
  });
  after(() => host.close());

  it('answers the control plane', async () => {
    assert.match(await host.ask(), /^HTTP\/1\.1 200 OK/);
  });

  it('proves that it is this host', async () => {
    const socket = await host.connect();
    assert.equal(socket.authorized, true);
    assert.equal(socket.getPeerX509Certificate()?.subjectAltName, `URI:${HOST_NAME}`);
    socket.destroy();
  });

  it('reads no HTTP of anyone else', async () => {
    const stranger = await TestAuthority.make('another fleet');
    const { authority } = host;
    const peers: [string, ConnectionOptions][] = [
      ['without a certificate', { key: '', cert: '' }],
      ['a control plane of another fleet', await stranger.pair(CONTROL_PLANE_NAME)],
      ['another host', await authority.pair(HOST_NAME)],
      ['a certificate with a second name', await authority.pair(CONTROL_PLANE_NAME, HOST_NAME)],
      ['a name that only begins well', await authority.pair(`${CONTROL_PLANE_NAME}/x`)],
      ['a name that contains another one', await authority.pair(`x, URI:${CONTROL_PLANE_NAME}`)],
      ['a certificate without names', await authority.pair()],
      ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
    ];
    const before = asked;
    for (const [who, options] of peers) await assert.rejects(host.ask(options), () => true, who);
    assert.equal(asked, before);
  });

  it('reads no HTTP without TLS', async () => {
    const request = startRequest({ host: '127.0.0.1', port: host.port });
    request.end();
    await assert.rejects(once(request, 'response'));
  });

  it('checks the certificate on every connection, because no session is resumed', async () => {
    const first = await host.connect();
    let session: Buffer | undefined;
    first.on('session', (one) => {
      session = one;
    });
    await FleetHost.askOn(first);
    const second = await host.connect({ session });
    assert.equal(second.isSessionReused(), false);
    second.destroy();
  });

  it('uses a new certificate and new authorities for new connections, and keeps the open ones', async () => {
    const own = await FleetHost.join();
    await own.listen(http);
    const open = await own.connect();
    const next = await TestAuthority.make('next');
    const issued = await next.sign(await own.member.requestCertificate(), [HOST_NAME]);
    own.member.install({ ...issued, authorities: [own.authority.pem, next.pem] });
    assert.match(await own.ask({ ca: next.pem }), /hello/);
    assert.match(await FleetHost.askOn(open), /hello/);

    own.member.install(issued);
    await assert.rejects(own.ask({ ca: next.pem }));
    assert.match(await own.ask({ ca: next.pem, ...(await next.pair(CONTROL_PLANE_NAME)) }), /hello/);
    await own.close();
  });

  it('answers the control plane while a stranger begins more handshakes than there may be', async () => {
    const where = { port: host.port, host: '127.0.0.1', localAddress: '127.0.0.2' };
    const idle = Array.from({ length: 400 }, () => connect(where).on('error', () => undefined));
    const [first] = idle;
    assert(first);
    await once(first.resume(), 'close');
    assert.match(await host.ask(), /hello/);
    for (const socket of idle) socket.destroy();
  });

  it('says in its log who was refused, once', async () => {
    assert.equal(host.warnings.length, 1, host.warnings.join('\n'));
  });

  it('serves node’s HTTP client', async () => {
    const sent = startSecureRequest({ agent: host.agent(), path: '/' }).end();
    const [answer] = (await once(sent, 'response')) as [import('node:http').IncomingMessage];
    assert.equal(await text(answer), 'hello');
    assert.equal((answer.socket as TLSSocket).getProtocol(), 'TLSv1.3');
  });
});
