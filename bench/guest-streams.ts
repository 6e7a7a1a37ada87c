// Measures guest streams between the control plane's client and the host agent's HTTP server. First it measures the
// memory that each of 500 idle streams uses. Then it sends 1 GiB through one stream, in both directions at the same
// time, and measures the rate and the memory. The host agent runs in a separate process, with a fake guest that sends
// every byte back.
//   node_modules/node/bin/node --expose-gc bench/guest-streams.ts
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { createHostClient, type HostClient } from '@sandbar/control-plane/hosts/client.ts';

const ROUNDS = 5;
const STREAMS = 500;
const BYTES = 1024 ** 3;
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const KIB = 1024;
const MACHINE = '019a0000-0000-7000-8000-00000000000b';
/** How long the processes get to free what they no longer need before their memory is read, in milliseconds. */
const SETTLE_MS = 500;

const open = async (client: HostClient) => {
  const { duplex } = await client.openStream(MACHINE, 'terminals.attach', {}, new AbortController().signal);
  return duplex;
};
const openMany = (client: HostClient) => Promise.all(Array.from({ length: STREAMS }, () => open(client)));

/** Resident memory of a process in KiB. */
function residentKib(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

async function readMemory(agentPid: number) {
  await delay(SETTLE_MS);
  globalThis.gc?.();
  return { heap: process.memoryUsage().heapUsed / KIB, here: residentKib(process.pid), agent: residentKib(agentPid) };
}

async function measureIdle(client: HostClient, agentPid: number): Promise<string> {
  const before = await readMemory(agentPid);
  const streams = await openMany(client);
  for (const stream of streams) {
    stream.write('x');
    await once(stream, 'data');
  }
  const after = await readMemory(agentPid);
  for (const stream of streams) stream.destroy();
  const each = (name: keyof typeof before) => ((after[name] - before[name]) / STREAMS).toFixed(1);
  return `heap ${each('heap')}, resident ${each('here')}; host agent: resident ${each('agent')}`;
}

async function measureBusy(client: HostClient, agentPid: number): Promise<string> {
  const before = await readMemory(agentPid);
  const most = { here: 0, agent: 0 };
  const look = () => {
    most.here = Math.max(most.here, residentKib(process.pid));
    most.agent = Math.max(most.agent, residentKib(agentPid));
  };
  const timer = setInterval(look, 20);
  const stream = await open(client);
  let received = 0;
  stream.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  const began = performance.now();
  for (let sent = 0; sent < BYTES; sent += CHUNK.length) if (!stream.write(CHUNK)) await once(stream, 'drain');
  while (received < BYTES) await once(stream, 'data');
  const seconds = (performance.now() - began) / 1000;
  clearInterval(timer);
  stream.destroy();
  const growth = (name: keyof typeof most) => ((most[name] - before[name]) / KIB).toFixed(0);
  return `${(BYTES / 1e6 / seconds).toFixed(0)} MB/s each way; grew by ${growth('here')} MiB; host agent by ${growth('agent')} MiB`;
}

const dir = mkdtempSync(join(tmpdir(), 'sandbar-bench-streams-'));
const program = new URL('../packages/control-plane/tests/support/guest-agent-server.ts', import.meta.url).pathname;
const agent = spawn(process.execPath, [program, join(dir, 'agent.sock')], { stdio: ['ignore', 'pipe', 'inherit'] });
try {
  if (!agent.stdout || agent.pid === undefined) throw new Error('the host agent did not start');
  await once(agent.stdout, 'data');
  const client = createHostClient({ socketPath: join(dir, 'agent.sock') });
  for (const stream of await openMany(client)) stream.destroy();
  for (let round = 0; round < ROUNDS; round++)
    console.log(`${STREAMS} idle streams, KiB each: ${await measureIdle(client, agent.pid)}`);
  for (let round = 0; round < ROUNDS; round++) console.log(`1 GiB each way: ${await measureBusy(client, agent.pid)}`);
  client.close();
} finally {
  agent.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true });
}
