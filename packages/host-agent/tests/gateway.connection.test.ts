// Tests the agent against a gateway that a guest has compromised. Whatever the gateway sends or does not send, the
// agent ends it, its sessions close, and every call ends.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Duplex, type DuplexOptions } from 'node:stream';
import { describe, it, mock } from 'node:test';
import { GatewayConnection } from '../src/gateway/connection.ts';
import { encodeFailure } from '../src/gateway/failure.ts';
import { outputHead } from '../src/gateway/output.ts';
import {
  encodeFrame,
  encodeJson,
  type Frame,
  FrameReader,
  KIND,
  MAX_PAYLOAD_BYTES,
  STREAM_CREDIT,
} from '../src/gateway/protocol.ts';
import { RemoteGuest } from '../src/gateway/remote-guest.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';

const JOB = { command: 'true', timeout_sec: 1 };
const ENDED = {
  id: 'j',
  status: 'exited',
  exitCode: 0,
  signal: null,
  stdinBytes: null,
  stdoutBytes: 0,
  stderrBytes: 0,
  truncated: false,
};

/** A connection to a gateway whose answers the test writes. */
class FakeGateway {
  readonly kills = mock.fn();
  readonly frames: Frame[] = [];
  readonly connection: GatewayConnection;
  readonly #channel: Duplex;

  constructor(options: DuplexOptions = {}) {
    const reader = new FrameReader();
    this.#channel = new Duplex({
      read() {},
      write: (chunk, _, done) => {
        this.frames.push(...reader.read(chunk));
        this.#channel.emit('frame');
        done();
      },
      ...options,
    });
    this.connection = new GatewayConnection(this.#channel, this.kills);
  }

  /** Sends bytes to the agent, and waits until it has read them. */
  async say(bytes: Buffer): Promise<void> {
    this.#channel.push(bytes);
    await new Promise((resolve) => setImmediate(resolve));
  }

  async session(): Promise<RemoteGuest> {
    const id = this.connection.newSessionId();
    const opening = this.connection.openSession(id, 'token', new AbortController().signal);
    await this.say(encodeFrame(KIND.opened, id));
    return new RemoteGuest(await opening);
  }

  /** Waits until the agent calls this method, and returns the id of the call. */
  async callOf(method: string): Promise<number> {
    for (;;) {
      const isIt = ({ kind, payload }: Frame) => kind === KIND.call && JSON.parse(String(payload)).method === method;
      const call = this.frames.find(isIt);
      if (call) return call.id;
      await once(this.#channel, 'frame');
    }
  }
}

const output = (id: number, bytes: Buffer, offset = 0) =>
  encodeFrame(KIND.output, id, outputHead('stdout', offset), bytes);
const result = (id: number, value: unknown) => encodeFrame(KIND.result, id, encodeJson(value));

describe('agent with a hostile gateway', () => {
  const violations: Record<string, (call: number) => Buffer> = {
    'a frame longer than the limit': () => {
      const head = encodeFrame(KIND.result, 1);
      head.writeUInt32BE(MAX_PAYLOAD_BYTES + 8, 0);
      return head;
    },
    'a frame too short for its head': () => Buffer.from([0, 0, 0, 3, 0, 0, 0]),
    'a kind that does not exist': () => encodeFrame(99, 1),
    'a kind that only the agent sends': () => encodeFrame(KIND.open, 1, encodeJson({ token: 'x' })),
    'an id that was never given out': () => result(1000, null),
    'a result that is not JSON': (call) => encodeFrame(KIND.result, call, Buffer.from('{')),
    'a list of jobs that is none': (call) => result(call, 'jobs'),
    'a job without a status': (call) => result(call, [{ ...ENDED, status: undefined }]),
    'a job with a status that only the host gives': (call) => result(call, [{ ...ENDED, status: 'lost' }]),
    'a job with a negative count': (call) => result(call, [{ ...ENDED, stdoutBytes: -1 }]),
    'a job with a field of its own': (call) => result(call, [{ ...ENDED, more: 1 }]),
    'a failure of an unknown type': (call) => encodeFrame(KIND.failure, call, encodeJson({ type: 'x', message: 'x' })),
    'a refusal in the name of the service': (call) =>
      encodeFrame(KIND.failure, call, encodeJson({ type: 'refused', code: 'unauthenticated', message: 'x' })),
    'the end of a session without a reason': () => encodeFrame(KIND.ended, 1, encodeJson({})),
  };
  for (const [what, bytes] of Object.entries(violations)) {
    it(`${what} ends the gateway, its sessions and its calls (ISO-10)`, async () => {
      const gateway = new FakeGateway();
      const guest = await gateway.session();
      const broken = assert.rejects(guest.listJobs(), /the guest gateway is gone: it violated its protocol/);
      await gateway.say(bytes(await gateway.callOf('listJobs')));
      await Promise.all([broken, guest.closed]);
      assert.equal(gateway.kills.mock.callCount(), 1);
      await assert.rejects(guest.listJobs(), /session with the guest is over/);
    });
  }

  const badOutput: Record<string, (id: number) => Buffer> = {
    'output without credit': (id) =>
      Buffer.concat(Array.from({ length: 5 }, () => output(id, Buffer.alloc(STREAM_CREDIT / 4)))),
    'endless single bytes, which cost more than they carry': (id) =>
      Buffer.concat(Array.from({ length: STREAM_CREDIT / 256 }, (_, at) => output(id, Buffer.from('x'), at))),
    'output without bytes': (id) => output(id, Buffer.alloc(0)),
    'an offset that is no number': (id) => encodeFrame(KIND.output, id, Buffer.from('01ffffffffffffffff78', 'hex')),
    'a stream that does not exist': (id) => encodeFrame(KIND.output, id, Buffer.from('07000000000000000078', 'hex')),
  };
  for (const [what, bytes] of Object.entries(badOutput)) {
    it(`${what} ends the gateway, and the reader of the job (ISO-10)`, async () => {
      const gateway = new FakeGateway();
      const guest = await gateway.session();
      const starting = guest.startJob('j', JOB, 1000);
      const id = await gateway.callOf('startJob');
      await gateway.say(result(id, null));
      const frames = await starting;
      await gateway.say(bytes(id));
      await assert.rejects(async () => {
        for await (const _ of frames);
      }, /violated its protocol/);
      assert.equal(gateway.kills.mock.callCount(), 1);
    });
  }

  it('a job that ends as another one is an error of the guest, and the session stays open (ISO-11)', async () => {
    const gateway = new FakeGateway();
    const guest = await gateway.session();
    const starting = guest.startJob('j', JOB, 1000);
    const id = await gateway.callOf('startJob');
    await gateway.say(Buffer.concat([result(id, null), encodeFrame(KIND.end, id, encodeJson({ ...ENDED, id: 'k' }))]));
    const frames = await starting;
    await assert.rejects(async () => {
      for await (const _ of frames);
    }, GuestProtocolError);
    assert.equal(gateway.kills.mock.callCount(), 0);
  });

  it('errors keep their kind, and frames of calls that are over are ignored', async () => {
    const gateway = new FakeGateway();
    const guest = await gateway.session();
    const refused = assert.rejects(guest.thaw(), { name: 'ServiceError', code: 'host_unavailable', retryAfterSec: 5 });
    const id = await gateway.callOf('thaw');
    const { ServiceError } = await import('@sandbar/contract/errors.ts');
    const failure = encodeFrame(KIND.failure, id, encodeFailure(new ServiceError('host_unavailable', 'no memory')));
    await gateway.say(Buffer.concat([failure, failure, result(id, 'late')]));
    await refused;
    assert.equal(gateway.kills.mock.callCount(), 0);
  });

  it('a session closes at once when the agent closes it, though the gateway answers nothing', async () => {
    const gateway = new FakeGateway();
    const guest = await gateway.session();
    const call = assert.rejects(guest.powerOff(), /session with the guest was closed/);
    guest.close();
    await Promise.all([guest.closed, call]);
    const abort = new AbortController();
    const opening = gateway.connection.openSession(gateway.connection.newSessionId(), 'token', abort.signal);
    abort.abort();
    await assert.rejects(opening, /did not answer in time/);
  });

  it('credit is given back only for what was read', async () => {
    const gateway = new FakeGateway();
    const guest = await gateway.session();
    const starting = guest.startJob('j', JOB, 1000);
    const id = await gateway.callOf('startJob');
    const piece = Buffer.alloc(50_000);
    await gateway.say(Buffer.concat([result(id, null), ...[0, 1, 2, 3].map((at) => output(id, piece, at * 50_000))]));
    const credits = () =>
      gateway.frames.filter(({ kind }) => kind === KIND.credit).map(({ payload }) => payload.readUInt32BE(0));
    const reader = (await starting)[Symbol.asyncIterator]();
    await reader.next();
    await reader.next();
    assert.deepEqual(credits(), []);
    await reader.next();
    assert.deepEqual(credits(), [2 * (50_000 + 256)]);
    await reader.return?.();
    assert.equal(gateway.frames.filter(({ kind }) => kind === KIND.drop).length, 1);
  });

  it('a gateway that answers no pings is ended', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const gateway = new FakeGateway();
    const guest = await gateway.session();
    for (let turn = 0; turn < 20; turn++) {
      t.mock.timers.tick(1000);
      if (turn < 10) await gateway.say(encodeFrame(KIND.pong, 0));
    }
    assert.equal(gateway.kills.mock.callCount(), 0, 'ten turns are not enough');
    t.mock.timers.tick(1000);
    assert.equal(gateway.kills.mock.callCount(), 1);
    await guest.closed;
  });

  it('a gateway that reads nothing is ended before the agent fills up', async () => {
    const gateway = new FakeGateway({ write() {} });
    const id = gateway.connection.newSessionId();
    const opening = gateway.connection.openSession(id, 'token', new AbortController().signal);
    await gateway.say(encodeFrame(KIND.opened, id));
    const guest = new RemoteGuest(await opening);
    const stdin = 'x'.repeat(1024 * 1024);
    const jobs = Array.from({ length: 70 }, (_, at) => guest.startJob(`j${at}`, { ...JOB, stdin }, 1000));
    for (const job of jobs) await assert.rejects(job, /does not read|session with the guest is over/);
    assert.equal(gateway.kills.mock.callCount(), 1);
  });
});
