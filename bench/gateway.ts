// Measures what the guest gateway costs. It times a job, a simple request, 100 MB of output and the opening of a
// session, in turns through the gateway and with a direct connection from this process. A process stands in for the
// guest, so the figures contain only the host's part.
//   node_modules/node/bin/node bench/gateway.ts        (as root: with the gateway's jail)
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Gateway } from '@sandbar/host-agent/gateway/gateway.ts';
import { openGuest } from '@sandbar/host-agent/gateway/open-guest.ts';
import { newChannelToken } from '@sandbar/host-agent/guest/channel-token.ts';
import type { Guest, GuestConnector } from '@sandbar/host-agent/guest/guest.ts';
import { ScriptedGuest } from '../packages/host-agent/tests/support/scripted-guest.ts';
import { measure, summarize } from './statistics.ts';

const ROUNDS = 5;
const EXECS = 200;
const OPENS = 20;
const OUTPUT_BYTES = 100_000_000;
const SOCKET = 'guest.sock';

/** Connects to guests directly from this process, without the gateway. */
const direct: GuestConnector = {
  connect: ({ dir, name, token }, signal) => openGuest(join(dir, name), token, signal),
};

async function bench(home: string): Promise<void> {
  const log = { error: (details: object, message: string) => console.error(message, details) };
  const isRoot = process.getuid?.() === 0;
  const gateway = await Gateway.start({ home, dir: join(home, 'run/gateway'), isRoot, log });
  await gateway.ready();
  const ways = { direct, gateway };
  const times = { exec: newTimes(), call: newTimes(), open: newTimes(), output: newTimes() };
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [way, connector] of Object.entries(ways) as [keyof typeof ways, GuestConnector][]) {
      const add = async (what: keyof typeof times, taken: number[]) => {
        // Discard the first round, which only warms up both processes.
        if (round > 0) times[what][way].push(...taken);
      };
      await add('open', await measure(OPENS, async () => closeAndWait(await openOn(connector, home))));
      const guest = await openOn(connector, home);
      await add('exec', await measure(EXECS, () => run(guest, newJobId())));
      await add('call', await measure(EXECS, () => guest.thaw()));
      await add('output', await measure(1, () => run(guest, 'output')));
      await closeAndWait(guest);
    }
  }
  for (const [what, both] of Object.entries(times))
    for (const [way, taken] of Object.entries(both)) console.log(`${what}, ${way}, ms: ${summarize(taken)}`);
  await gateway.close();
}

let jobs = 0;
const newJobId = () => `exec-${++jobs}`;

function newTimes(): { direct: number[]; gateway: number[] } {
  return { direct: [], gateway: [] };
}

function openOn(connector: GuestConnector, home: string): Promise<Guest> {
  const address = { dir: home, name: SOCKET, token: newChannelToken() };
  return connector.connect(address, AbortSignal.timeout(10_000), () => false);
}

async function closeAndWait(guest: Guest): Promise<void> {
  guest.close();
  await guest.closed;
}

/** Runs a job to its end, and makes the guest delete it. */
async function run(guest: Guest, jobId: string): Promise<void> {
  for await (const _ of await guest.startJob(jobId, { command: 'true', timeout_sec: 10 }, OUTPUT_BYTES));
  guest.forgetJob(jobId).catch(() => {});
}

async function serveGuest(path: string): Promise<void> {
  const output = Buffer.alloc(OUTPUT_BYTES, 'x');
  const guest = await ScriptedGuest.listen(path);
  guest.onStart = (jobId) => {
    guest.print(jobId, jobId === 'output' ? output : 'hello\n');
    guest.end(jobId);
  };
  process.send?.('ready');
  process.on('disconnect', () => process.exit(0));
}

const [guestSocket] = process.argv.slice(2);
if (guestSocket) await serveGuest(guestSocket);
else {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
  const guest = fork(import.meta.filename, [join(home, SOCKET)]);
  await once(guest, 'message');
  try {
    await bench(home);
  } finally {
    guest.disconnect();
    rmSync(home, { recursive: true, force: true });
  }
}
