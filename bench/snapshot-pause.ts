// Measures how long a memory snapshot stops the processes of a machine. It starts a host agent and machines of its own.
// A process in the machine sends a byte about every millisecond, and the longest time without one is the pause. The
// machine's own clocks would not show it, because they stand still with the machine.
//   sudo node_modules/node/bin/node bench/snapshot-pause.ts
// The base image must have been built before (npm start does that); SANDBAR_CACHE names its folder.
// Optional variables: BENCH_MEMORY_MB (default 1024), BENCH_TOUCHED_MB (written by the process, default 200),
// BENCH_ROUNDS (snapshots per machine, default 9).
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { AgentProcess } from '../packages/host-agent/tests/support/agent-process.ts';
import { summarize } from './statistics.ts';

const MEMORY_MB = Number(process.env.BENCH_MEMORY_MB ?? 1024);
const TOUCHED_MB = Number(process.env.BENCH_TOUCHED_MB ?? 200);
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 9);
const PORT = 7000;
/** Between two snapshots, so that the work after one does not disturb the next. */
const REST_MS = 1000;

const TICKER = `
import os, socket, time
data = bytearray(${TOUCHED_MB} << 20)
page = os.urandom(4096)
for i in range(0, len(data), 4096): data[i:i+4096] = page
server = socket.socket(); server.bind(("0.0.0.0", ${PORT})); server.listen()
open("/dev/shm/ready", "w").close()
client, _ = server.accept(); client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while True:
  client.send(b"x"); time.sleep(0.001)
`;

const machineOf = (number: number) => `019a0000-0000-7000-8000-0000000000${number.toString(16).padStart(2, '0')}`;
const SNAPSHOT = '019a0000-0000-7000-8000-0000000001aa';
const size = { memory_mb: MEMORY_MB };

async function main(): Promise<void> {
  const agent = new AgentProcess({ SANDBAR_TEMPLATES: '1' });
  try {
    await agent.start();
    await agent.run(machineOf(1), [], size);
    await measurePauses(agent, machineOf(1), 'booted cold');
    await agent.destroy(machineOf(1));
    // The agent makes a template when a shape is requested for the second time.
    for (let number = 2; !agent.hasTemplate(); number++) {
      await agent.run(machineOf(number), [], size);
      await agent.destroy(machineOf(number));
      await delay(REST_MS);
    }
    await agent.run(machineOf(99), [], size);
    if (!agent.isClone(machineOf(99))) throw new Error('the machine is not a clone');
    await measurePauses(agent, machineOf(99), 'a clone');
  } finally {
    await agent.close();
  }
}

async function measurePauses(agent: AgentProcess, id: string, what: string): Promise<void> {
  const { generation, private_ip } = await agent.statusOf(id);
  if (private_ip === null) throw new Error('the machine has no address');
  await agent.exec(id, `cat > /dev/shm/ticker.py <<'END'\n${TICKER}END\npython3 /dev/shm/ticker.py > /dev/null 2>&1 &`);
  await agent.exec(id, 'until test -e /dev/shm/ready; do sleep 0.1; done');
  const ticks = connect(PORT, private_ip);
  await once(ticks, 'connect');
  const watch = new PauseWatch(ticks);
  const pauses: number[] = [];
  const durations: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await delay(REST_MS);
    watch.reset();
    const begin = performance.now();
    await agent.done('PUT', `/v1/machines/${id}/snapshots/${SNAPSHOT}`, { generation, memory: true });
    durations.push(performance.now() - begin);
    pauses.push(watch.longestMs);
    await agent.done('DELETE', `/v1/snapshots/${SNAPSHOT}`);
  }
  ticks.destroy();
  const own = /^Anonymous:\s+(\d+)/m.exec(readFileSync(`/proc/${agent.pidOf(id)}/smaps_rollup`, 'utf8'))?.[1];
  console.log(`${what}, ${TOUCHED_MB} MB touched, QEMU has ${Math.round(Number(own) / 1024)} MB of its own`);
  console.log(`  pause of its processes, ms: ${summarize(pauses)}`);
  console.log(`  whole snapshot, ms: ${summarize(durations)}`);
}

/** Measures the longest time between two bytes. */
class PauseWatch {
  longestMs = 0;
  #last = performance.now();

  constructor(ticks: Socket) {
    ticks.on('data', () => {
      const now = performance.now();
      this.longestMs = Math.max(this.longestMs, now - this.#last);
      this.#last = now;
    });
  }

  reset(): void {
    this.longestMs = 0;
  }
}

await main();
