// The HTTP/2 client against a guest that does not keep to the protocol: whatever it sends or leaves out, a call ends.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { GuestClient } from '../src/guest/guest-client.ts';

describe('guest client', () => {
  const path = `/tmp/sandbar-guest-client-${process.pid}.sock`;
  const clients: GuestClient[] = [];
  let server: Http2Server;
  let respond: (stream: ServerHttp2Stream) => void = () => {};
  before(async () => {
    server = createServer().on('stream', (stream) => {
      stream.on('error', () => {});
      respond(stream);
    });
    server.on('sessionError', () => {});
    await new Promise<void>((resolve) => server.listen(path, resolve));
  });
  after(() => {
    for (const client of clients) client.close();
    server.close();
  });
  const open = async (requestTimeoutMs?: number) => {
    const socket = connect(path);
    await once(socket, 'connect');
    const client = new GuestClient(socket, requestTimeoutMs);
    clients.push(client);
    return client;
  };

  it('a body that never ends is given up', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 200 });
      stream.write('{"jobs": [');
    };
    const client = await open(100);
    await assert.rejects(client.listJobs(), /did not answer GET \/jobs in time/);
  });

  it('an answer that never comes is given up', async () => {
    respond = () => {};
    await assert.rejects((await open(100)).cancelJob('x'), /did not answer POST \/jobs\/x\/cancel in time/);
  });

  it('a job may be silent for longer than a request', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 200 });
      setTimeout(() => stream.end(Buffer.from('01000000000000020000000000000000' + '6869', 'hex')), 300);
    };
    const frames = await (await open(100)).followJob('x', { stdout: 0, stderr: 0 });
    for await (const frame of frames) {
      assert.deepEqual(frame.type === 'output' && frame.bytes.toString(), 'hi');
      break;
    }
  });

  it('a command that the machine has no means to start is refused with the reason, and the session goes on', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 500 });
      stream.end('{"code": "internal_error", "detail": "start: fork: cannot allocate memory"}');
    };
    const client = await open();
    const start = () => client.startJob('x', { command: 'true', timeout_sec: 1 }, 100);
    for (let round = 0; round < 2; round++) {
      await assert.rejects(start, { code: 'host_unavailable', message: /cannot allocate memory/ });
    }
  });

  it('a guest that says goodbye and stays is left, so that a new session can begin', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 200 });
      (stream.session as ServerHttp2Session).goaway();
    };
    const client = await open();
    const frames = await client.followJob('x', { stdout: 0, stderr: 0 });
    const broken = assert.rejects(async () => {
      for await (const _ of frames);
    });
    await Promise.all([client.closed, broken]);
  });
});
