// Measures ports of a machine through a running service, compared in turns with a direct connection from this host to
// the machine's address: the rate of a large body, the time of a request, and many WebSockets. Creates a machine and
// destroys it at the end.
//   SANDBAR_HOME=… node_modules/node/bin/node bench/ports.ts
// The service must run on this computer as root, because only then the host reaches machines directly. Optional
// variables: BENCH_MB (size of the body, default 100), BENCH_REQUESTS (default 200), BENCH_SOCKETS (default 200).
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request as openRequest } from 'node:http';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { WebSocket } from 'ws';
import { residentMb } from './service/processes.ts';
import { summarize } from './statistics.ts';

const MB = Number(process.env.BENCH_MB ?? 100);
const REQUESTS = Number(process.env.BENCH_REQUESTS ?? 200);
const SOCKETS = Number(process.env.BENCH_SOCKETS ?? 200);
const ROUNDS = 5;
const PORT = 8000;
const PROGRAM = readFileSync(new URL('../tests/e2e/support/port-program.py', import.meta.url), 'utf8');
const PROCESSES = ['control-plane', 'host-agent'] as const;

const paths = homePaths(defaultHome(process.env, process.getuid?.() === 0));
const sandbar = new Client({ userAgent: 'sandbar-bench' });
const memory = () =>
  PROCESSES.map((name) => residentMb(Number(readFileSync(paths.pidFile(name), 'utf8').split('\n')[0])));

/** A way to the program: the address to connect to, and the header fields of each request. */
type Way = { name: string; host: string; port: number; headers: Record<string, string>; agent: Agent };

async function get({ host, port, headers, agent }: Way, path: string): Promise<number> {
  const request = openRequest({ host, port, path, headers, agent });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let bytes = 0;
  for await (const chunk of response) bytes += (chunk as Buffer).length;
  if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}`);
  return bytes;
}

async function timeOf(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

/** Milliseconds of `rounds` runs for each way, the ways taking turns. */
async function inTurns(
  ways: readonly Way[],
  rounds: number,
  work: (way: Way) => Promise<unknown>,
): Promise<number[][]> {
  const times: number[][] = ways.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [index, way] of ways.entries()) times[index]?.push(await timeOf(() => work(way)));
  }
  return times;
}

const median = (times: readonly number[]): number => [...times].sort((a, b) => a - b)[times.length >> 1] ?? Number.NaN;

async function measure(machineId: string, address: string): Promise<void> {
  const service = new URL(sandbar.baseUrl);
  const { token } = await sandbar.ports(machineId).token(PORT);
  const headers = { host: `${PORT}-${machineId}.localhost`, 'x-sandbar-key': token };
  const relayed = { name: 'relayed', host: service.hostname, port: Number(service.port), headers };
  const direct = { name: 'direct', host: address, port: PORT, headers: {} };
  const ways = [direct, relayed].map((way) => ({ ...way, agent: new Agent({ keepAlive: true, maxSockets: 1 }) }));

  for (const way of ways) await get(way, `/bytes/${MB * 1e6}`);
  const [directMs = [], relayedMs = []] = await inTurns(ways, ROUNDS, (way) => get(way, `/bytes/${MB * 1e6}`));
  const rates = [directMs, relayedMs].map((times) => MB / (median(times) / 1000));
  const ratio = (rates[1] ?? 0) / (rates[0] ?? 1);
  console.log(
    `${MB} MB, median of ${ROUNDS}: direct ${rates[0]?.toFixed(1)} MB/s, relayed ${rates[1]?.toFixed(1)} MB/s, ratio ${ratio.toFixed(2)}`,
  );

  for (const isKept of [true, false]) {
    const agents = isKept ? ways : ways.map((way) => ({ ...way, agent: new Agent({ keepAlive: false }) }));
    for (let count = 0; count < 20; count++) for (const way of agents) await get(way, '/');
    const times = await inTurns(agents, REQUESTS, (way) => get(way, '/'));
    for (const [index, way] of agents.entries()) {
      console.log(
        `request, ${way.name}, ${isKept ? 'kept' : 'new'} connection, ms: ${JSON.stringify(summarize(times[index] ?? []))}`,
      );
    }
    console.log(`  the relay adds ${(median(times[1] ?? []) - median(times[0] ?? [])).toFixed(2)} ms at the median`);
  }

  const before = memory();
  const sockets: WebSocket[] = [];
  const opened = await timeOf(async () => {
    const open = async () => {
      const socket = new WebSocket(sandbar.baseUrl.replace('http', 'ws'), { headers });
      await once(socket, 'open');
      sockets.push(socket);
    };
    for (let count = 0; count < SOCKETS; count += 20) await Promise.all(Array.from({ length: 20 }, open));
  });
  const echoed = await timeOf(() =>
    Promise.all(
      sockets.map(async (socket) => {
        socket.send('hello');
        await once(socket, 'message');
      }),
    ),
  );
  const grown = memory().map((mb, index) => (mb ?? 0) - (before[index] ?? 0));
  console.log(
    `${sockets.length} WebSockets: opened in ${Math.round(opened)} ms, all echoed in ${Math.round(echoed)} ms; ` +
      PROCESSES.map((name, index) => `${name} grew by ${grown[index]?.toFixed(1)} MB`).join(', '),
  );
  for (const socket of sockets) socket.terminate();
}

const machine = await sandbar.machines.create({ memory_mb: 1024 });
try {
  await sandbar.execs.start(machine.id, { argv: ['python3', '-c', PROGRAM, '0.0.0.0', String(PORT)] });
  const isOpen = async () => (await sandbar.ports(machine.id).list()).some(({ port }) => port === PORT);
  while (!(await isOpen())) await new Promise((resolve) => setTimeout(resolve, 200));
  await measure(machine.id, machine.private_ip ?? '');
} finally {
  await sandbar.machines.destroy(machine.id);
}
