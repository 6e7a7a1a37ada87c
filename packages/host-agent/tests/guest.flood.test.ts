// Tests a hostile guest whose output is meant to cost the host more than it costs the guest: output that repeats
// itself, and output in tiny pieces. The guest is a process of its own that speaks raw HTTP/2.
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { GuestClient } from '../src/guest/guest-client.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';
import { Http2Transport } from '../src/guest/http2-transport.ts';
import { Job } from '../src/jobs/job.ts';
import { ManualBudget } from './support/manual-budget.ts';

const LIMIT_BYTES = 1024 * 1024;
const SPEC = { command: 'true', timeout_sec: 1 };

describe('a guest that floods its host with output', { timeout: 30_000 }, () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-flood-'));
  const socketPath = join(dir, 'guest.sock');
  let hostile: ChildProcess;
  let server: Http2Server | undefined;
  before(async () => {
    hostile = fork(fileURLToPath(new URL('support/hostile-guest.ts', import.meta.url)), [socketPath]);
    await once(hostile, 'message');
  });
  after(() => {
    hostile.kill();
    server?.close();
    rmSync(dir, { recursive: true });
  });

  async function attack(name: string): Promise<GuestClient> {
    const socket = connect(socketPath);
    await once(socket, 'connect');
    socket.write(`${name}|reading\n`);
    return new GuestClient(new Http2Transport(socket));
  }

  for (const name of ['the same output twice', 'output frames without a byte']) {
    it(`${name} ends the job, and fills nothing (RES-6)`, async () => {
      const jobDir = join(dir, name.replaceAll(' ', '-'));
      mkdirSync(jobDir);
      const job = Job.create(jobDir, 'm', 'j', LIMIT_BYTES);
      const guest = await attack(name);
      const follow = job.follow(() => guest.startJob('j', SPEC, LIMIT_BYTES), guest, {
        whenThereIsRoom: async () => {},
      });
      await assert.rejects(follow, GuestProtocolError);
      await job.lose();
      guest.close();
      assert.ok(sizeOf(join(jobDir, 'stdout')) <= 16_384);
    });
  }

  it('output in frames of one byte is read within a budget, and read on when there is more of it (RES-6)', async () => {
    const manual = new ManualBudget();
    server = createServer().on('stream', (stream) => void sendBytewise(stream));
    server.on('sessionError', () => {});
    const path = join(dir, 'bytewise.sock');
    await new Promise<void>((resolve) => server?.listen(path, resolve));
    const socket = connect(path);
    await once(socket, 'connect');
    const guest = new GuestClient(new Http2Transport(socket, manual.budget));
    let bytes = 0;
    const reading = (async () => {
      for await (const frame of await guest.startJob('j', SPEC, LIMIT_BYTES))
        if (frame.type === 'output') bytes += frame.bytes.length;
    })();
    await manual.used();
    const first = bytes;
    assert.ok(first > 100_000 && first < 400_000, `${first} frames at once`);
    for (let second = 1; second <= 2; second++) {
      const again = manual.used();
      manual.passSecond();
      await again;
      assert.ok(bytes > first + second * 100_000 && bytes < first + second * 400_000, `${bytes} frames`);
    }
    guest.close();
    manual.passSecond();
    await assert.rejects(reading);
  });

  it('data frames of one byte end the session as a flood, also when nobody reads them (RES-6)', async () => {
    const guest = await attack('data frames of one byte');
    const started = guest.startJob('j', SPEC, LIMIT_BYTES);
    started.catch(() => {});
    await guest.closed;
  });
});

/** Answers with output that is cut into frames of one byte, as fast as it is read. */
async function sendBytewise(stream: ServerHttp2Stream): Promise<void> {
  stream.on('error', () => {});
  stream.respond({ ':status': 200 });
  const frames = Buffer.alloc(960 * 17, 'x');
  for (let offset = 0; !stream.destroyed; offset += 960) {
    for (let at = 0; at < 960; at++) {
      frames.writeUInt32BE(1 << 24, at * 17);
      frames.writeUInt32BE(1, at * 17 + 4);
      frames.writeBigUInt64BE(BigInt(offset + at), at * 17 + 8);
    }
    await new Promise<void>((resolve) => void stream.write(Buffer.from(frames), () => resolve()));
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
