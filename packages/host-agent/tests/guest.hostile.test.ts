// Tests the agent with a hostile guest: whatever that guest sends, the call to it ends, the host's memory stays
// bounded, and other guests are still answered.
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer, type Http2Server } from 'node:http2';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { GuestClient } from '../src/guest/guest-client.ts';
import { Http2Transport } from '../src/guest/http2-transport.ts';
import { ATTACKS } from './support/hostile-guest.ts';

const REQUEST_TIMEOUT_MS = 150;
/** nghttp2 may use 32 MB per session. The rest allows for garbage that Node has not collected yet. */
const MAX_GROWTH_BYTES = 96 * 1024 * 1024;

describe('hostile guest', { concurrency: false }, () => {
  const hostilePath = `/tmp/sandbar-hostile-${process.pid}.sock`;
  const honestPath = `/tmp/sandbar-honest-${process.pid}.sock`;
  let hostile: ChildProcess;
  let honest: Http2Server;
  let neighbour: GuestClient;

  before(async () => {
    hostile = fork(fileURLToPath(new URL('support/hostile-guest.ts', import.meta.url)), [hostilePath]);
    await once(hostile, 'message');
    honest = createServer((_, response) => response.end('{"jobs": []}'));
    await new Promise<void>((resolve) => honest.listen(honestPath, resolve));
    const socket = connect(honestPath);
    await once(socket, 'connect');
    neighbour = new GuestClient(new Http2Transport(socket));
  });
  after(() => {
    neighbour.close();
    honest.close();
    hostile.kill();
    for (const path of [hostilePath, honestPath]) rmSync(path, { force: true });
  });

  async function attack(name: string, mode: string): Promise<GuestClient> {
    const socket = connect(hostilePath);
    await once(socket, 'connect');
    socket.write(`${name}|${mode}\n`);
    return new GuestClient(new Http2Transport(socket), REQUEST_TIMEOUT_MS);
  }

  const calls: Record<string, (guest: GuestClient) => Promise<unknown>> = {
    'a question': (guest) => guest.listJobs(),
    'an identity': (guest) =>
      guest.setIdentity({
        machineId: 'm',
        hostname: 'm',
        address: '10.0.0.2/24',
        gateway: '10.0.0.1',
        nameServers: [],
        mac: '52:54:00:00:00:01',
        mtu: 1500,
      }),
    'a job': async (guest) => {
      // A job's stream has no timeout, because a job may be silent for any time. It ends when the host closes the
      // session.
      const giveUp = setTimeout(() => guest.close(), 3 * REQUEST_TIMEOUT_MS);
      const job = guest.startJob('j', { command: 'true', timeout_sec: 1, stdin: 'x'.repeat(1_000_000) }, 1000);
      try {
        for await (const _ of await job);
      } finally {
        clearTimeout(giveUp);
      }
    },
  };

  for (const name of Object.keys(ATTACKS)) {
    for (const [what, call] of Object.entries(calls)) {
      it(`${name}, instead of the answer to ${what} (ISO-10)`, async () => {
        for (const mode of ['reading', 'deaf']) {
          const before = process.memoryUsage().rss;
          const guest = await attack(name, mode);
          const ended = call(guest).then(
            () => assert.fail('it was answered'),
            (error: unknown) => assert.ok(error instanceof Error && error.name !== 'AssertionError', String(error)),
          );
          for (let i = 0; i < 20; i++) assert.deepEqual(await neighbour.listJobs(), []);
          await ended;
          for (let i = 0; i < 20; i++) assert.deepEqual(await neighbour.listJobs(), []);
          const grown = process.memoryUsage().rss - before;
          guest.close();
          await guest.closed;
          assert.ok(grown < MAX_GROWTH_BYTES, `the host grew by ${grown} bytes`);
        }
      });
    }
  }

  for (const name of [
    'a flood of informational answers',
    'a flood of window updates',
    'frames of an unknown type',
    'alternative services',
    'origins',
  ]) {
    it(`${name} end the session also while the job that they come instead of may be silent (ISO-10)`, async () => {
      const guest = await attack(name, 'reading');
      const started = guest.startJob('j', { command: 'true', timeout_sec: 1 }, 1000);
      started.catch(() => {});
      await guest.closed;
    });
  }

  it('output that nobody reads fills nothing, whatever the window (ISO-10)', async () => {
    const before = process.memoryUsage().rss;
    const guest = await attack('output without end', 'reading');
    const [first] = await Promise.allSettled([guest.startJob('j', { command: 'true', timeout_sec: 1 }, 1000)]);
    for (let i = 0; i < 500; i++) assert.deepEqual(await neighbour.listJobs(), []);
    assert.ok(process.memoryUsage().rss - before < MAX_GROWTH_BYTES);
    await guest.closed;
    if (first.status === 'fulfilled') {
      const frames = first.value;
      await assert.rejects(async () => {
        for await (const _ of frames);
      });
    }
  });
});
