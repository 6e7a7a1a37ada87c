// What is done to the replicas while clients work: first they are killed at random, then restarted one after the other.
// All the time terminals are open.
import type { Kill, Killing } from '../../bench/kills/killer.ts';
import type { Fleet } from './bed/fleet.ts';
import { killReplicas } from './replica-kills.ts';
import { rollReplicas } from './rolling-restart.ts';
import { OpenTerminals } from './terminals.ts';

/** Returns the kills. `say` prints a line with figures. */
export async function harmReplicas(
  fleet: Fleet,
  minutes: number,
  killing: Killing,
  say: (line: string) => void,
): Promise<Kill[]> {
  const { journal } = killing;
  const terminals = await OpenTerminals.open(fleet);
  const began = performance.now();
  const kills = await killReplicas(fleet, minutes, killing);
  const { count, longestMs } = terminals.breaksSince(began);
  say(`kills: ${count} reconnects of terminals, at most ${longestMs.toFixed(0)} ms`);
  say(await rollReplicas(fleet, terminals, killing));
  for (const difference of await terminals.close()) journal.difference(difference);
  return kills;
}
