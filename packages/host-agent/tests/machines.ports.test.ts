// Tests how the host connects to ports of machines: by itself at the machine's address, else through the guest agent.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { GuestStream } from '../src/guest/guest-stream.ts';
import { type FakeHost, SPEC } from './support/fake-host.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const running = (generation: number) => ({ generation, desired: 'running' as const, spec: SPEC });
const PARAMS = JSON.stringify({ port: 8000 });

describe('ports of a machine', () => {
  let host: FakeHost;
  const servers: Server[] = [];
  const newHost = makeHosts();
  beforeEach(async () => {
    host = newHost();
    await host.start();
    await host.registry.ensure(ID, running(1));
  });
  after(() => {
    for (const server of servers) server.close();
  });

  /** Lets the host reach a program at the address of the machine. */
  const serve = async (program: (socket: Socket) => void) => {
    const server = createServer({ allowHalfOpen: true }, (socket) => program(socket.on('error', () => undefined)));
    servers.push(server.listen(0, '127.0.0.1'));
    await once(server, 'listening');
    host.network.connect = async (privateIp, port) => {
      assert.deepEqual([privateIp, port], ['10.200.0.9', 8000]);
      const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
      await once(socket, 'connect');
      return socket;
    };
  };
  const open = () => host.registry.get(ID).openStream('ports.connect', PARAMS);

  it('carry bytes both ways, and the end of each direction', async () => {
    await serve((socket) => void text(socket).then((content) => socket.end(content.toUpperCase())));
    const { head, duplex, result } = await open();
    assert.equal(head, '{}');
    duplex.end('hello');
    assert.equal(await text(duplex), 'HELLO');
    assert.equal(await result, '{}');
  });

  it('end a connection with an error when the program resets it', async () => {
    await serve((socket) => socket.once('data', () => socket.resetAndDestroy()));
    const { duplex, result } = await open();
    duplex.on('error', () => undefined);
    duplex.write('x');
    await assert.rejects(result, { code: 'conflict', message: /ECONNRESET/ });
  });

  it('end all connections when the machine stops or dies', async () => {
    await serve(() => undefined);
    for (const end of ['stop', 'die']) {
      const { duplex, result } = await open();
      duplex.on('error', () => undefined);
      if (end === 'stop') await host.registry.ensure(ID, { generation: 2, desired: 'stopped', spec: SPEC });
      else host.hypervisor.running.get(ID)?.exitByItself({ cause: 'died', reason: 'QEMU crashed' });
      await assert.rejects(result);
      assert(duplex.destroyed);
      if (end === 'stop') await host.registry.ensure(ID, running(3));
    }
  });

  it('are not connected for a machine that stopped meanwhile, because another one may have its address', async () => {
    await serve(() => undefined);
    const { promise: isStopped, resolve } = Promise.withResolvers<void>();
    const connectNow = host.network.connect;
    let socket: Socket | undefined;
    host.network.connect = async (...where) => {
      socket = await connectNow(...where);
      await isStopped;
      return socket;
    };
    const opening = open();
    await host.registry.ensure(ID, { generation: 2, desired: 'stopped', spec: SPEC });
    resolve();
    await assert.rejects(opening, { code: 'conflict' });
    assert(socket?.destroyed);
  });

  it('are connected by the guest agent where the host is refused, and its refusal names the open ports', async () => {
    const vm = host.hypervisor.running.get(ID);
    assert(vm);
    const asked: string[] = [];
    const duplex = Duplex.from([Buffer.from('loopback')]);
    vm.onStream = async (name, params): Promise<GuestStream> => {
      asked.push(`${name} ${params}`);
      if (asked.length === 2) throw new ServiceError('port_not_open', 'Open ports: 22 (sshd).');
      return { head: '{}', duplex, result: Promise.resolve('{}') };
    };
    assert.equal((await open()).duplex, duplex);
    await assert.rejects(open(), { code: 'port_not_open', message: 'Open ports: 22 (sshd).' });
    assert.deepEqual(asked, Array(2).fill(`ports.connect ${PARAMS}`));
  });

  it('are numbers from 1 to 65535', async () => {
    for (const port of [0, 65_536, 1.5, '80', null]) {
      const opening = host.registry.get(ID).openStream('ports.connect', JSON.stringify({ port }));
      await assert.rejects(opening, { code: 'validation_error' });
    }
  });
});
