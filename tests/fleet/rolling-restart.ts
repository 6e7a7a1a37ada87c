// A rolling restart of all replicas, as docs/replicas.md describes it: SIGTERM, wait until the new process is ready, then
// the next one. Meanwhile no accepted request and no terminal may be lost.
import { setTimeout as delay } from 'node:timers/promises';
import type { Killing } from '../../bench/kills/killer.ts';
import { isTargetReady } from './bed/balancer.ts';
import type { Fleet } from './bed/fleet.ts';
import { Probes } from './probes.ts';
import type { OpenTerminals } from './terminals.ts';

/** How often each replica is restarted. */
const ROUNDS = 2;
/** The load goes on for this long before, between and after the restarts. */
const BETWEEN_MS = 3_000;
const POLL_MS = 100;
const READY_MS = 60_000;
/** The longest time that a terminal may be without a connection: a few attempts of the SDK on a busy computer. */
const RECONNECT_MS = 5_000;

export async function rollReplicas(
  fleet: Fleet,
  terminals: OpenTerminals,
  { journal, signal }: Killing,
): Promise<string> {
  const probes = await Probes.start(fleet);
  const began = performance.now();
  const brokenBefore = journal.countRetries('broken connection');
  let restarts = 0;
  for (let round = 0; round < ROUNDS; round++) {
    for (const replica of fleet.replicas) {
      await delay(BETWEEN_MS, undefined, { signal });
      const from = performance.now();
      await replica.end('SIGTERM');
      const endedMs = performance.now() - from;
      await replica.start();
      await untilReady(replica.readyUrl, signal);
      journal.write(`${replica.name} ended in ${endedMs.toFixed(0)} ms, and is ready again`);
      restarts++;
    }
  }
  await delay(BETWEEN_MS, undefined, { signal });
  await probes.stop();
  const { count, longestMs } = terminals.breaksSince(began);
  for (const difference of probes.differences) journal.difference(`rolling restart: ${difference}`);
  if (longestMs > RECONNECT_MS) {
    journal.difference(`rolling restart: a terminal had no connection for ${longestMs.toFixed(0)} ms`);
  }
  if (count === 0) journal.difference('rolling restart: no terminal was moved, so nothing was tested');
  return (
    `${restarts} restarts: ${probes.answered} requests answered, ${probes.refused} refused and sent again, ` +
    `${probes.differences.length} dropped; ` +
    `${journal.countRetries('broken connection') - brokenBefore} connections of the other clients broke; ` +
    `${count} reconnects of terminals, at most ${longestMs.toFixed(0)} ms`
  );
}

async function untilReady(readyUrl: string, signal: AbortSignal): Promise<void> {
  for (const until = performance.now() + READY_MS; !(await isTargetReady(readyUrl)); ) {
    if (performance.now() > until) throw new Error(`a replica was not ready in ${READY_MS / 1000} s`);
    await delay(POLL_MS, undefined, { signal });
  }
}
