// Tests the client of an older guest agent, which speaks HTTP/2, against a guest that violates the protocol: whatever
// the guest sends or leaves out, every call ends.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import type { ServiceError } from '@sandbar/contract/errors.ts';
import { GuestClient } from '../src/guest/guest-client.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';
import { Http2Transport } from '../src/guest/http2-transport.ts';

describe('guest client', () => {
  const path = `/tmp/sandbar-guest-client-${process.pid}.sock`;
  const clients: GuestClient[] = [];
  let server: Http2Server;
  let respond: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void = () => {};
  before(async () => {
    server = createServer().on('stream', (stream, headers) => {
      stream.on('error', () => {});
      respond(stream, headers);
    });
    server.on('sessionError', () => {});
    await new Promise<void>((resolve) => server.listen(path, resolve));
  });
  after(() => {
    for (const client of clients) client.close();
    server.close();
  });
  const open = async (requestTimeoutMs?: number, flushTimeoutMs?: number) => {
    const socket = connect(path);
    await once(socket, 'connect');
    const client = new GuestClient(new Http2Transport(socket), requestTimeoutMs, flushTimeoutMs);
    clients.push(client);
    return client;
  };

  it('a body that never ends is aborted', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 200 });
      stream.write('{"jobs": [');
    };
    const client = await open(100);
    await assert.rejects(client.listJobs(), /did not answer GET \/jobs in time/);
  });

  it('a body that is too large is given up (ISO-10)', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 200 });
      const fill = () => {
        while (!stream.destroyed && stream.write(Buffer.alloc(65_536, ' ')));
      };
      stream.on('drain', fill);
      fill();
    };
    await assert.rejects((await open()).listJobs(), /too large/);
  });

  it('a request without an answer is aborted', async () => {
    respond = () => {};
    await assert.rejects((await open(100)).cancelJob('x'), /did not answer POST \/jobs\/x\/cancel in time/);
  });

  it('a job may be silent for longer than a request may take may take', async () => {
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

  it('a command that the machine cannot start is refused with a reason, and the session stays open', async () => {
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

  it('a session is closed when the guest sends GOAWAY without closing it, so that a new session can begin', async () => {
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

  it('the status of another job does not end this one (ISO-11)', async () => {
    const end = { status: 'exited', exit_code: 0, signal: null, stdout_bytes: 0, stderr_bytes: 0, truncated: false };
    const say = (id: string) => {
      const payload = Buffer.from(JSON.stringify({ ...end, id }));
      const header = Buffer.alloc(16);
      header.writeUInt8(3, 0);
      header.writeUInt32BE(payload.length, 4);
      respond = (stream) => {
        stream.respond({ ':status': 200 });
        stream.end(Buffer.concat([header, payload]));
      };
    };
    const client = await open();
    const follow = async () => {
      const frames = [];
      for await (const frame of await client.followJob('mine', { stdout: 0, stderr: 0 })) frames.push(frame.type);
      return frames;
    };
    say('mine');
    assert.deepEqual(await follow(), ['end']);
    say('yours');
    await assert.rejects(follow(), GuestProtocolError);
  });

  it('what a guest answers to its identity is not listened to (ISO-11)', async () => {
    respond = (stream) => {
      stream.respond({ ':status': 200 });
      stream.end('{"machine_id": "another", "identity": "another"}');
    };
    const identity = {
      machineId: 'm',
      hostname: 'm',
      address: '10.0.0.2/24',
      gateway: '',
      nameServers: [],
      mac: '',
      mtu: 0,
    };
    assert.equal(await (await open()).setIdentity(identity), undefined);
  });

  it('a guest counts as bare only if it says that it awaits its disk (CLN-1)', async () => {
    let body = '{"version": "x", "awaits_disk": true}';
    respond = (stream, headers) => {
      assert.equal(`${headers[':method']} ${headers[':path']}`, 'GET /healthz');
      stream.respond({ ':status': 200 });
      stream.end(body);
    };
    const client = await open();
    await client.checkBare();
    for (body of ['{"version": "x"}', '{"awaits_disk": false}', '{"awaits_disk": "yes"}', 'null'])
      await assert.rejects(client.checkBare(), { code: 'conflict' });
  });

  it('a guest is asked whether its processes were held when they should be, and its refusal is a conflict (CLN-2)', async () => {
    const seen: unknown[] = [];
    respond = (stream) => {
      let text = '';
      stream.on('data', (chunk) => {
        text += chunk;
      });
      stream.on('end', () => {
        seen.push(JSON.parse(text).was_held);
        stream.respond({ ':status': seen.length === 1 ? 409 : 200 });
        stream.end('{"code": "conflict", "detail": "not frozen"}');
      });
    };
    const client = await open();
    const rest = { address: '10.0.0.2/24', gateway: '', nameServers: [], mac: '', mtu: 0 };
    const identity = { machineId: 'm', hostname: 'm', ...rest };
    await assert.rejects(client.setIdentity({ ...identity, wasHeld: true }), { code: 'conflict' });
    await client.setIdentity(identity);
    assert.deepEqual(seen, [true, undefined]);
  });

  it("a guest refuses only with what is a guest's to say (ISO-10)", async () => {
    for (const [code, expected] of [
      ['not_found', 'not_found'],
      ['unauthorized', 'host_unavailable'],
      ['insufficient_balance', 'host_unavailable'],
    ]) {
      respond = (stream) => {
        stream.respond({ ':status': 404 });
        stream.end(JSON.stringify({ code, detail: 'x'.repeat(10_000) }));
      };
      await assert.rejects((await open()).cancelJob('x'), (error: ServiceError) => {
        assert.equal(error.code, expected);
        return error.message.length < 1000;
      });
    }
  });

  it('a lease can be claimed only if the guest says so, and a claim has only what the lease lacks', async () => {
    const bodies: string[] = [];
    let answer = '{}';
    respond = async (stream) => {
      stream.respond({ ':status': 200 });
      bodies.push(await text(stream));
      stream.end(answer);
    };
    const client = await open();
    const lease = { systemId: 's', hostname: 'm-1', address: '10.0.0.2/16', gateway: '10.0.0.1', nameServers: [] };
    const more = { mac: '02:00:00:00:00:01', mtu: 1500 };
    for (const [given, expected] of [
      ['{"has_names":true}', true],
      ['{"has_names":"yes"}', false],
      ['null', false],
      ['{}', false],
    ] as const) {
      answer = given;
      assert.equal(await client.lease({ ...lease, ...more }), expected, given);
    }
    const { system_id, hostname, address } = JSON.parse(bodies[0] ?? '');
    assert.deepEqual({ system_id, hostname, address }, { system_id: 's', hostname: 'm-1', address: '10.0.0.2/16' });
    await client.claim({ machineId: 'm', diskBytes: 7 });
    const { time_unix_ms, ...claim } = JSON.parse(bodies.at(-1) ?? '');
    assert.deepEqual(claim, { machine_id: 'm', disk_bytes: 7 });
    assert.ok(Math.abs(Date.now() - time_unix_ms) < 60_000);
  });

  it('a warm-up round is an identity step and a job, and leaves no job', async () => {
    const seen: string[] = [];
    const job = { status: 'exited', exit_code: 0, signal: null, stdout_bytes: 0, stderr_bytes: 0, truncated: false };
    const payload = Buffer.from(JSON.stringify({ ...job, id: 'warm-up' }));
    const header = Buffer.alloc(16);
    header.writeUInt8(3, 0);
    header.writeUInt32BE(payload.length, 4);
    let left = '[]';
    respond = (stream, headers) => {
      const call = `${headers[':method']} ${headers[':path']}`;
      seen.push(call);
      stream.respond({ ':status': 200 });
      if (call === 'PUT /jobs/warm-up') stream.end(Buffer.concat([header, payload]));
      else stream.end(call === 'GET /jobs' ? `{"jobs": ${left}}` : '{}');
    };
    const client = await open();
    await client.warmUp('agent');
    assert.deepEqual(seen, [
      'POST /warm-up',
      'PUT /jobs/warm-up',
      'POST /jobs/warm-up/ack',
      'DELETE /jobs/warm-up',
      'GET /jobs',
    ]);
    left = `[${payload.toString()}]`;
    await assert.rejects(client.warmUp('agent'), /left with a job/);
  });

  it('requests that write to a disk have a longer time limit of their own', async () => {
    const client = await open(50, 10_000);
    const answerLate = async (call: Promise<void>) => {
      await assert.rejects(client.listJobs(), /GET \/jobs in time/);
      return call;
    };
    respond = (stream, headers) => {
      if (headers[':path'] === '/jobs') return;
      setTimeout(() => {
        stream.respond({ ':status': 204 });
        stream.end();
      }, 200);
    };
    await answerLate(client.mountVolume({ volumeId: 'v', slot: 0, path: '/mnt/v' }));
    await answerLate(client.unmountVolume('v'));
    await answerLate(client.freeze(100));
    respond = () => {};
    await assert.rejects((await open(10_000, 50)).freeze(100), /did not answer POST \/freeze in time/);
  });

  it('the calls for volumes and the freeze have the form that the guest expects', async () => {
    const seen: string[] = [];
    respond = (stream, headers) => {
      let body = '';
      stream.on('data', (chunk) => {
        body += chunk;
      });
      stream.on('end', () => {
        seen.push(`${headers[':method']} ${headers[':path']} ${body}`.trim());
        stream.respond({ ':status': 204 });
        stream.end();
      });
    };
    const client = await open();
    await client.mountVolume({ volumeId: 'v', slot: 7, path: '/mnt/v' });
    await client.unmountVolume('v');
    await client.freeze(900);
    await client.thaw();
    await client.holdProcesses(800);
    await client.releaseProcesses();
    assert.deepEqual(seen, [
      'PUT /mounts/v {"slot":7,"path":"/mnt/v"}',
      'DELETE /mounts/v',
      'POST /freeze {"timeout_ms":900}',
      'POST /thaw',
      'POST /hold {"timeout_ms":800}',
      'POST /release',
    ]);
  });
});
