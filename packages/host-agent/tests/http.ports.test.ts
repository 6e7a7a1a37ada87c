// Tests the route of the host API that carries connections to ports, with the client of the control plane.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex, PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import Fastify from 'fastify';
import { openPortSocket, wasCut } from '../../control-plane/src/hosts/port-socket.ts';
import type { GuestStream } from '../src/guest/guest-stream.ts';
import { addPortRoute } from '../src/http/port-route.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const dir = mkdtempSync(join(tmpdir(), 'sandbar-ports-'));
const socketPath = join(dir, 'host.sock');
let open: (name: string, params: string) => GuestStream = () => {
  throw new ServiceError('port_not_open', 'Open ports: 80 (nginx).');
};
const server = Fastify({ forceCloseConnections: true });
const machines = {
  get: (id: string) => {
    if (id !== ID) throw new ServiceError('not_found', 'no such machine');
    return { callGuest: async () => '{}', openStream: async (name: string, params: string) => open(name, params) };
  },
};
addPortRoute(server, machines, (error) => error as ServiceError);
await server.listen({ path: socketPath });
after(async () => {
  await server.close();
  rmSync(dir, { recursive: true });
});

const closing = new AbortController();
const errors = {
  refused: (status: number, body: string) => new ServiceError('conflict', `${status} ${body}`),
  broken: (cause: unknown) => new ServiceError('host_unavailable', String(cause)),
};
const connect = (path = `/v1/machines/${ID}/ports/80`, signal = closing.signal) =>
  openPortSocket(socketPath, path, signal, errors);

/**
 * A fake program in a machine, with the bytes that it sends and gets. `finish` ends its sending, well or with an error.
 */
function program() {
  const [sent, received] = [new PassThrough(), new PassThrough()];
  const duplex = Duplex.from({ readable: sent, writable: received });
  const { promise: result, resolve, reject } = Promise.withResolvers<string>();
  result.catch(() => undefined);
  open = () => ({ head: '{}', duplex, result });
  const finish = (error?: Error) => {
    if (error) reject(error);
    else {
      sent.end();
      resolve('{}');
    }
  };
  return { sent, received, duplex, finish };
}

describe('a connection to a port over the host API', () => {
  it('carries bytes both ways, and is complete when the program ends it', async () => {
    const { sent, received, finish } = program();
    const socket = await connect();
    socket.write('up');
    assert.equal(String((await once(received, 'data'))[0]), 'up');
    sent.write('down');
    finish();
    assert.equal(await text(socket), 'down');
    assert.equal(wasCut(socket), false);
  });

  it('is not complete when it breaks on the side of the machine', async () => {
    const { sent, finish } = program();
    const socket = await connect();
    sent.write('half');
    await once(socket, 'readable');
    finish(new Error('the machine stopped'));
    await text(socket).catch(() => undefined);
    assert.equal(wasCut(socket), true);
  });

  it('ends for the machine when the client closes it, and when the service stops', async () => {
    for (const end of ['close', 'stop']) {
      const { duplex } = program();
      const stopping = new AbortController();
      const socket = await connect(undefined, stopping.signal);
      socket.on('error', () => undefined);
      if (end === 'close') socket.destroy();
      else stopping.abort();
      await new Promise((resolve) => duplex.on('error', () => undefined).once('close', resolve));
    }
  });

  it('is refused with the error of the machine, for a path that is none, and for an absent machine', async () => {
    open = () => {
      throw new ServiceError('port_not_open', 'Open ports: 80 (nginx).');
    };
    await assert.rejects(connect(), { message: /^502 .*"detail":"Open ports: 80 \(nginx\)\."/ });
    await assert.rejects(connect('/v1/machines'), { message: /^500 / });
    const absent = connect(`/v1/machines/${ID.replace('a', 'b')}/ports/80`);
    await assert.rejects(absent, { message: /^404 / });
    await assert.rejects(connect(undefined, AbortSignal.abort(new Error('stopped'))), { message: 'stopped' });
  });
});
