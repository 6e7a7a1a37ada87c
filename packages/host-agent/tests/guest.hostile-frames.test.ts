// Tests the agent with a hostile guest that speaks frames: whatever that guest sends, the call to it ends, and the
// host's memory stays bounded.
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { FrameTransport } from '../src/guest/frame-transport.ts';
import { GuestClient } from '../src/guest/guest-client.ts';
import { ATTACKS } from './support/hostile-frames.ts';

const REQUEST_TIMEOUT_MS = 150;
/** A session may keep 8 MiB of output. The rest allows for garbage that Node has not collected yet. */
const MAX_GROWTH_BYTES = 64 * 1024 * 1024;

describe('hostile guest that speaks frames', { concurrency: false, timeout: 60_000 }, () => {
  const path = `/tmp/sandbar-hostile-frames-${process.pid}.sock`;
  let hostile: ChildProcess;
  before(async () => {
    hostile = fork(fileURLToPath(new URL('support/hostile-frames.ts', import.meta.url)), [path]);
    await once(hostile, 'message');
  });
  after(() => {
    hostile.kill();
    rmSync(path, { force: true });
  });

  async function attack(name: string): Promise<GuestClient> {
    const socket = connect(path);
    await once(socket, 'connect');
    socket.write(`${name}\n`);
    return new GuestClient(new FrameTransport(socket), REQUEST_TIMEOUT_MS);
  }

  const calls: Record<string, (guest: GuestClient) => Promise<unknown>> = {
    'a question': (guest) => guest.listJobs(),
    'a job': async (guest) => {
      // A job may be silent for any time after its stream has begun. It ends when the host closes the session.
      const giveUp = setTimeout(() => guest.close(), 3 * REQUEST_TIMEOUT_MS);
      try {
        for await (const _ of await guest.startJob('j', { command: 'true', timeout_sec: 1 }, 1000));
      } finally {
        clearTimeout(giveUp);
      }
    },
  };
  for (const name of Object.keys(ATTACKS))
    for (const [what, call] of Object.entries(calls))
      it(`${name}, instead of the answer to ${what} (ISO-10)`, async () => {
        const before = process.memoryUsage().rss;
        const guest = await attack(name);
        // One attack sends output for as long as the reader takes it. That job ends when the host closes the session.
        await assert.rejects(call(guest), (error: Error) => error.name !== 'AssertionError');
        const grown = process.memoryUsage().rss - before;
        guest.close();
        await guest.closed;
        assert.ok(grown < MAX_GROWTH_BYTES, `the host grew by ${grown} bytes`);
      });

  it('output that nobody reads ends the session at the end of its credit (ISO-10)', async () => {
    const guest = await attack('output without credit');
    const started = await guest.startJob('j', { command: 'true', timeout_sec: 1 }, 1000);
    await guest.closed;
    await assert.rejects(async () => {
      for await (const _ of started);
    }, /without credit/);
  });
});
