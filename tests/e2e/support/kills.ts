// Kills processes of the service with SIGKILL while a test has something under way.
import { setTimeout as delay } from 'node:timers/promises';
import { restart } from './host.ts';

type Name = 'host-agent' | 'control-plane';

/** What is killed, in turns: each process alone, then both at once. */
const VICTIMS: readonly (readonly Name[])[] = [['host-agent'], ['control-plane'], ['host-agent', 'control-plane']];
/** The longest pause between the moment when a kill is due and the kill, ms. It makes the kill hit any step. */
const JITTER_MS = 40;

/**
 * Runs `work` and kills processes `count` times meanwhile. `work` tells how far it is, as a share from 0 to 1; the kills
 * are spread evenly over that. Work that is done before a kill is due waits for nothing, so tell the share often.
 * Resolves with the result when the service works again. The kills do not wait for the work, nor the work for them.
 */
export async function underKills<T>(count: number, work: (advance: (share: number) => void) => Promise<T>): Promise<T> {
  let due = 0;
  let kills = Promise.resolve();
  const kill = (names: readonly Name[]) => async () => {
    await delay(Math.random() * JITTER_MS);
    await restart(names, 'SIGKILL');
  };
  const advance = (share: number) => {
    while (due < count && share >= (due + 0.5) / count) {
      kills = kills.then(kill(VICTIMS[due % VICTIMS.length] ?? []));
      // The error is thrown below, when the work has ended.
      kills.catch(() => {});
      due += 1;
    }
  };
  const result = await work(advance);
  await kills;
  if (due < count) throw new Error(`the work ended after ${due} of ${count} kills`);
  return result;
}
