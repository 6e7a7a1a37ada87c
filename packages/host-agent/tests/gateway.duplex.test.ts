// Tests two-way streams through the gateway: the agent's side and the gateway's side of the protocol are connected, and
// the test plays the guest.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { Duplex, PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it, mock } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { GatewayConnection } from '../src/gateway/connection.ts';
import { outputHead } from '../src/gateway/output.ts';
import {
  encodeFrame,
  encodeJson,
  type Frame,
  FrameReader,
  INPUT_CREDIT,
  KIND,
  STREAM_CREDIT,
  uint32,
} from '../src/gateway/protocol.ts';
import { RemoteGuest } from '../src/gateway/remote-guest.ts';
import { GatewaySessions } from '../src/gateway/sessions.ts';
import type { Guest } from '../src/guest/guest.ts';
import type { GuestStream } from '../src/guest/guest-stream.ts';

const turns = async () => {
  for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
};

/** An agent's channel whose other end is `take`. Returns it with a function that sends bytes to the agent. */
function channelTo(take: (frame: Frame) => void) {
  const reader = new FrameReader();
  const channel = new Duplex({
    read() {},
    write: (chunk, _, done) => {
      for (const frame of reader.read(chunk)) take(frame);
      done();
    },
  });
  return { channel, say: (bytes: Buffer) => void channel.push(bytes) };
}

/** A session through a gateway with the guest of the test. */
async function openWith(guest: Partial<Guest>): Promise<RemoteGuest> {
  const { channel, say } = channelTo((frame) => sessions.take(frame));
  const open = async () => ({ closed: new Promise(() => {}), close() {}, ...guest }) as Guest;
  const sessions: GatewaySessions = new GatewaySessions(open, say);
  const connection = new GatewayConnection(channel, () => {});
  const line = await connection.openSession(connection.newSessionId(), 'x', AbortSignal.timeout(60_000));
  return new RemoteGuest(line);
}

/** A stream of which the test has the guest's end. */
function newStream() {
  const [toGuest, toHost] = [new PassThrough(), new PassThrough()];
  const duplex = Duplex.from({ readable: toHost, writable: toGuest });
  duplex.on('error', () => {});
  const { promise, ...settle } = Promise.withResolvers<string>();
  promise.catch(() => {});
  const stream: GuestStream = { head: '{"a":1}', duplex, result: promise };
  return { stream, toGuest, toHost, ...settle };
}

describe('two-way streams through the gateway', { timeout: 60_000 }, () => {
  it('20 MB pass in both directions at once, and the result after them', async () => {
    const { stream, toGuest, toHost, resolve } = newStream();
    const guest = await openWith({ openStream: async () => stream });
    const opened = await guest.openStream('files.read', '{}');
    assert.equal(opened.head, '{"a":1}');
    toGuest.pipe(toHost);
    toGuest.on('end', () => resolve('{"bytes":1}'));
    const content = randomBytes(20_000_000);
    const hash = createHash('sha256');
    opened.duplex.on('data', (bytes) => hash.update(bytes));
    await pipeline(Readable.from([content]), opened.duplex);
    assert.equal(await opened.result, '{"bytes":1}');
    assert.equal(hash.digest('hex'), createHash('sha256').update(content).digest('hex'));
  });

  it('a guest that takes no input makes the writer wait, and one that nobody reads waits too', async () => {
    const { stream, toHost } = newStream();
    const guest = await openWith({ openStream: async () => stream });
    const { duplex } = await guest.openStream('terminals.attach', '{}');
    let taken = 0;
    const flood = Buffer.alloc(10_000);
    while (taken < 4 * INPUT_CREDIT && duplex.write(flood)) {
      taken += flood.length;
      await turns();
    }
    assert.ok(taken < 2 * INPUT_CREDIT, `${taken} bytes taken`);
    let sent = 0;
    while (sent < 8 * STREAM_CREDIT && toHost.write(flood)) {
      sent += flood.length;
      await turns();
    }
    assert.ok(sent < 3 * STREAM_CREDIT, `${sent} bytes sent`);
    duplex.destroy();
    await turns();
    assert.ok(stream.duplex.destroyed, 'the stream with the guest is cut');
  });

  it('a cut is never passed on as an end', async () => {
    const { stream, toGuest, reject } = newStream();
    const ended = mock.fn();
    toGuest.on('finish', ended);
    const guest = await openWith({ openStream: async () => stream });
    const opened = await guest.openStream('files.write', '{}');
    opened.duplex.write('half');
    await turns();
    opened.duplex.destroy();
    reject(new Error('the stream was cut'));
    await assert.rejects(opened.result, /cut/);
    await turns();
    assert.equal(ended.mock.callCount(), 0);
  });

  it("the guest's error keeps its code, before and after the beginning", async () => {
    const refusal = new ServiceError('port_not_open', 'nothing listens');
    const refusing = await openWith({ openStream: () => Promise.reject(refusal), call: () => Promise.reject(refusal) });
    await assert.rejects(refusing.openStream('ports.connect', '{}'), { code: 'port_not_open' });
    await assert.rejects(refusing.call('files.list', '{}', 1000), { code: 'port_not_open' });
    const { stream, reject } = newStream();
    const guest = await openWith({ openStream: async () => stream });
    const opened = await guest.openStream('files.write', '{}');
    reject(new ServiceError('disk_full', 'no room'));
    stream.duplex.destroy();
    await assert.rejects(opened.result, { code: 'disk_full', message: 'no room' });
    assert.ok(opened.duplex.destroyed);
  });

  it('the answer of a call is passed on as it is', async () => {
    const guest = await openWith({ call: async (name, params, ms) => JSON.stringify([name, params, ms]) });
    assert.equal(await guest.call('files.list', '{"path":"/"}', 7), '["files.list","{\\"path\\":\\"/\\"}",7]');
  });
});

describe('agent with a hostile gateway and a two-way stream', () => {
  const output = (bytes: Buffer) => [KIND.output, Buffer.concat([outputHead('stdout', 0), bytes])] as const;
  const violations: Record<string, readonly (readonly [number, Buffer])[]> = {
    'a head that is no text': [[KIND.result, encodeJson({ size: 1 })]],
    'credit for input that was not sent': [
      [KIND.result, encodeJson('{}')],
      [KIND.allow, uint32(1)],
    ],
    'credit in another shape': [
      [KIND.result, encodeJson('{}')],
      [KIND.allow, Buffer.alloc(3)],
    ],
    'an end that is no text': [
      [KIND.result, encodeJson('{}')],
      [KIND.end, encodeJson({ code: 0 })],
    ],
    'output without credit': [
      [KIND.result, encodeJson('{}')],
      ...[0, 1, 2, 3, 4].map(() => output(Buffer.alloc(60_000))),
    ],
  };
  for (const [what, frames] of Object.entries(violations)) {
    it(`${what} ends the gateway and the stream (ISO-10)`, async () => {
      const kill = mock.fn();
      const { channel, say } = channelTo(({ kind, id }) => {
        if (kind === KIND.open) say(encodeFrame(KIND.opened, id));
        if (kind === KIND.call) for (const [of, payload] of frames) say(encodeFrame(of, id, payload));
      });
      const connection = new GatewayConnection(channel, kill);
      const line = await connection.openSession(connection.newSessionId(), 'x', AbortSignal.timeout(60_000));
      const ended = new RemoteGuest(line).openStream('files.read', '{}').then(({ result }) => result);
      await assert.rejects(ended, /protocol/);
      assert.equal(kill.mock.callCount(), 1);
    });
  }
});
