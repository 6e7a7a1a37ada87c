// Tests the bounds on connections whose peer is not known yet, with real connections and a clock of the test.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { after, before, beforeEach, describe, it, mock } from 'node:test';
import { Handshakes } from '../src/fleet/handshakes.ts';
import { until } from './support/fake-host.ts';

describe('handshakes of strangers', () => {
  let now = 0;
  let handshakes: Handshakes;
  const server = createServer().listen(0, '127.0.0.1');
  const clients: Socket[] = [];
  before(() => once(server, 'listening'));
  beforeEach(() => {
    handshakes = new Handshakes(() => now);
  });
  after(() => {
    for (const client of clients) client.destroy();
    server.close();
  });

  /**
   * Opens a connection from an address of the loopback network. Returns the end of the agent, and whether it may go on.
   */
  const open = async (localAddress: string) => {
    const accepted = once(server, 'connection');
    const client = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', localAddress });
    clients.push(client.on('error', () => undefined).resume());
    const [socket] = (await accepted) as [Socket];
    socket.on('error', () => undefined);
    return { client, socket, isAdmitted: handshakes.admit(socket) };
  };
  const fail = async (address: string) => {
    const { client, socket, isAdmitted } = await open(address);
    client.destroy();
    if (isAdmitted) await once(socket.resume(), 'close');
    return isAdmitted;
  };

  it('are closed when they take too long, and no others', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const [slow, known] = [await open('127.0.0.2'), await open('127.0.0.2')];
    handshakes.succeeded(known.socket);
    mock.timers.tick(10_000);
    mock.timers.reset();
    assert.deepEqual([slow.socket.destroyed, known.socket.destroyed], [true, false]);
    await until('it is forgotten', () => handshakes.underWay === 0);
  });

  it('are refused at once from an address where too many have failed, until some time has passed', async () => {
    let failed = 0;
    while (await fail('127.0.0.3')) failed += 1;
    assert.ok(failed >= 10 && failed < 100, `${failed}`);
    assert.equal((await open('127.0.0.3')).isAdmitted, false);
    assert.equal((await open('127.0.0.4')).isAdmitted, true);
    now += 1000;
    assert.equal((await open('127.0.0.3')).isAdmitted, true);
  });

  it('do not count against an address from which one has succeeded since', async () => {
    for (let failed = 0; failed < 10; failed++) await fail('127.0.0.5');
    const good = await open('127.0.0.5');
    handshakes.succeeded(good.socket);
    for (let failed = 0; failed < 15; failed++) assert.equal(await fail('127.0.0.5'), true);
  });

  it('make room for others: the oldest one of the address with the most is closed', async () => {
    const other = await open('127.0.0.7');
    const many: Socket[] = [];
    while (many.length < 256) many.push((await open('127.0.0.6')).socket);
    const [first, ...more] = many;
    assert.equal(first?.destroyed, true);
    assert.equal(handshakes.underWay, 256);
    assert.ok([other.socket, ...more].every((socket) => !socket.destroyed));
  });
});
