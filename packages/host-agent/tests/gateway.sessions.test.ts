// Tests the gateway's side of the protocol with a guest that the test writes.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import { openGuest } from '../src/gateway/open-guest.ts';
import { parseOutput } from '../src/gateway/output.ts';
import { encodeJson, type Frame, FrameReader, KIND, OUTPUT_COST, STREAM_CREDIT } from '../src/gateway/protocol.ts';
import { GatewaySessions, NotListening, type OpenGuest } from '../src/gateway/sessions.ts';
import { turnWriter } from '../src/gateway/turn-writer.ts';
import { GREETING } from '../src/guest/channel-token.ts';
import type { Guest, JobFrame } from '../src/guest/guest.ts';
import { answerOf, beginOf, endOf, outputOf, serveFrames } from './support/frame-guest.ts';
import { createSocketFile } from './support/scripted-guest.ts';

const SESSION = 1;
const CALL = 2;
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** The gateway's sessions, with what they sent to the agent. */
function newSessions(open: OpenGuest) {
  const sent: Frame[] = [];
  const reader = new FrameReader();
  const sessions = new GatewaySessions(open, (bytes) => void sent.push(...reader.read(bytes)));
  const take = (kind: number, id: number, payload: Buffer = Buffer.alloc(0)) => sessions.take({ kind, id, payload });
  const call = (method: string, ...args: unknown[]) =>
    take(KIND.call, CALL, encodeJson({ session: SESSION, method, args }));
  const ofKind = (kind: number) => sent.filter((frame) => frame.kind === kind);
  return { take, call, sent, ofKind };
}

async function openWith(guest: Partial<Guest>) {
  const sessions = newSessions(async () => ({ closed: new Promise(() => {}), close() {}, ...guest }) as Guest);
  sessions.take(KIND.open, SESSION, encodeJson({ token: 'x' }));
  await settled();
  return sessions;
}

/**
 * What a guest echoes: token and epoch, which follow the greeting. `flipped`: the bits of the epoch that it inverts.
 */
function echoOf(hello: Buffer, flipped: number): Buffer {
  return Buffer.concat([hello.subarray(GREETING.length, -8), hello.subarray(-8).map((byte) => byte ^ flipped)]);
}

describe('sessions of the gateway', () => {
  it('the output and the end of a job that arrive together leave in one write', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'sandbar-open-'));
    const sockets: Socket[] = [];
    const job = { id: 'j', status: 'exited', stdout_bytes: 6, stderr_bytes: 0, truncated: false };
    const server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      socket.once('data', (hello) => {
        socket.write(echoOf(hello, 0xff));
        serveFrames(socket, ({ id, ...call }) => {
          assert.equal(call.path, '/jobs/j');
          socket.write(Buffer.concat([beginOf(id), outputOf(id, 0, 'hello\n'), endOf(id, job)]));
        });
      });
    });
    await new Promise<void>((resolve) => server.listen(join(dir, 'socket'), resolve));
    const reader = new FrameReader();
    const writes: number[][] = [];
    const whenEnded = Promise.withResolvers<void>();
    const onWrite = (bytes: Buffer) => {
      writes.push([...reader.read(bytes)].map(({ kind }) => kind));
      if (writes.at(-1)?.includes(KIND.end)) whenEnded.resolve();
    };
    const channel = new Writable({
      write: (bytes, _, done) => {
        onWrite(bytes);
        done();
      },
      writev: (pieces, done) => {
        onWrite(Buffer.concat(pieces.map(({ chunk }) => chunk)));
        done();
      },
    });
    const opened = Promise.withResolvers<void>();
    const openHere: OpenGuest = (_, token, signal) =>
      openGuest(join(dir, 'socket'), token, signal).finally(() => setImmediate(opened.resolve));
    const sessions = new GatewaySessions(openHere, turnWriter(channel));
    sessions.take({ kind: KIND.open, id: SESSION, payload: encodeJson({ token: 'ab'.repeat(32) }) });
    await opened.promise;
    writes.length = 0;
    const call = { session: SESSION, method: 'startJob', args: ['j', { command: 'true', timeout_sec: 1 }, 100] };
    sessions.take({ kind: KIND.call, id: CALL, payload: encodeJson(call) });
    await whenEnded.promise;
    assert.deepEqual(writes, [[KIND.result, KIND.output, KIND.end]]);
    for (const socket of sockets) socket.destroy();
    server.close();
    rmSync(dir, { recursive: true });
  });

  it('output that the agent does not take stops the guest, and goes on with new credit (ISO-10)', async () => {
    const bytes = Buffer.alloc(100_000, 'x');
    let pulled = 0;
    let isReturned = false;
    async function* frames(): AsyncGenerator<JobFrame> {
      try {
        for (;;) yield { type: 'output', stream: 'stdout', offset: bytes.length * pulled++, bytes };
      } finally {
        isReturned = true;
      }
    }
    const { take, call, ofKind } = await openWith({ startJob: async () => frames() });
    call('startJob', 'j', {}, 1);
    for (let turn = 0; turn < 100; turn++) await settled();
    const outputs = () => ofKind(KIND.output).map(({ payload }) => parseOutput(payload));
    const cost = () => outputs().reduce((sum, output) => sum + output.bytes.length + OUTPUT_COST, 0);
    assert.deepEqual([cost(), pulled], [STREAM_CREDIT, 3]);
    const credit = Buffer.alloc(4);
    credit.writeUInt32BE(150_000);
    take(KIND.credit, CALL, credit);
    for (let turn = 0; turn < 100; turn++) await settled();
    assert.deepEqual([cost(), pulled], [STREAM_CREDIT + 150_000, 5]);
    let offset = 0;
    for (const output of outputs()) {
      assert.equal(output.offset, offset);
      offset += output.bytes.length;
    }
    take(KIND.drop, CALL);
    for (let turn = 0; turn < 10; turn++) await settled();
    assert.ok(isReturned, 'the stream of the guest is ended');
  });

  it('only functions of the list can be called', async () => {
    const { call, ofKind } = await openWith({});
    for (const method of ['close', 'constructor', '__proto__', 'toString', 'closed']) call(method);
    await settled();
    const failures = ofKind(KIND.failure).map(({ payload }) => JSON.parse(String(payload)).message);
    assert.deepEqual(failures.length, 5);
    for (const message of failures) assert.match(message, /there is no call/);
  });

  it('a session that is closed while it opens is closed when it is open, and ends once', async () => {
    let closes = 0;
    const closed = Promise.withResolvers<void>();
    const opening = Promise.withResolvers<Guest>();
    const { take, ofKind } = newSessions(() => opening.promise);
    take(KIND.open, SESSION, encodeJson({ token: 'x' }));
    take(KIND.close, SESSION);
    const close = () => {
      closes++;
      closed.resolve();
    };
    opening.resolve({ closed: closed.promise, close } as unknown as Guest);
    for (let turn = 0; turn < 5; turn++) await settled();
    assert.deepEqual([closes, ofKind(KIND.opened).length, ofKind(KIND.ended).length], [1, 0, 1]);
  });

  it('a socket on which nobody listens is told apart, so that the agent can try again', async () => {
    const { take, ofKind } = newSessions(async () => {
      throw new NotListening('refused');
    });
    take(KIND.open, SESSION, encodeJson({ token: 'x' }));
    await settled();
    assert.deepEqual(JSON.parse(String(ofKind(KIND.ended)[0]?.payload)), { message: 'refused', isListening: false });
    const path = join(mkdtempSync(join(tmpdir(), 'sandbar-open-')), 'socket');
    await createSocketFile(path);
    await assert.rejects(openGuest(path, 'ab'.repeat(32), AbortSignal.timeout(5000)), NotListening);
    rmSync(join(path, '..'), { recursive: true });
  });

  for (const [protocol, first, flipped] of [
    ['HTTP/2', Buffer.from('000000040000000000', 'hex'), 0],
    ['frames', answerOf(1, 200), 0xff],
  ] as const)
    it(`a session of ${protocol} that is closed at once does no harm, though bytes came with the echo`, async () => {
      const dir = mkdtempSync(join(tmpdir(), 'sandbar-open-'));
      const sockets: Socket[] = [];
      const server = createServer((socket) => {
        sockets.push(socket);
        socket.on('error', () => {});
        socket.once('data', (hello) => socket.write(Buffer.concat([echoOf(hello, flipped), first])));
      });
      await new Promise<void>((resolve) => server.listen(join(dir, 'socket'), resolve));
      for (let round = 0; round < 20; round++) {
        const guest = await openGuest(join(dir, 'socket'), 'ab'.repeat(32), AbortSignal.timeout(5000));
        guest.close();
        await guest.closed;
      }
      for (const socket of sockets) socket.destroy();
      server.close();
      rmSync(dir, { recursive: true });
    });
});
