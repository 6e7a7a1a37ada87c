// Kills processes of the service with SIGKILL while a test has something under way.
import { setTimeout as delay } from 'node:timers/promises';
import { restart } from './host.ts';

type Name = 'host-agent' | 'control-plane';

/** What is killed, one after the other: each process alone, then both at once. */
const VICTIMS: readonly (readonly Name[])[] = [['host-agent'], ['control-plane'], ['host-agent', 'control-plane']];
/** The longest pause between the moment when a kill is due and the kill, ms. It makes the kill hit any step. */
const JITTER_MS = 40;

/** Tells how far the work is, from 0 to 1. Resolves when the service works again after the kills that are due. */
export type Advance = (share: number) => Promise<void>;

/**
 * Runs `work` and meanwhile kills the host agent, the control plane, and both, spread evenly over the work. Resolves with
 * its result when the service works again. Work that does not wait for `advance` is under way during the kills. Work
 * that has ended before a kill is due fails, because the kill would have hit nothing.
 */
export async function underKills<T>(work: (advance: Advance) => Promise<T>): Promise<T> {
  let due = 0;
  let kills = Promise.resolve();
  const kill = async (names: readonly Name[]) => {
    await delay(Math.random() * JITTER_MS);
    await restart(names, 'SIGKILL');
  };
  const advance = (share: number): Promise<void> => {
    for (; due < VICTIMS.length && share >= (due + 0.5) / VICTIMS.length; due++) {
      const names = VICTIMS[due] ?? [];
      kills = kills.then(() => kill(names));
      // An error is thrown below, also when nobody waits here.
      kills.catch(() => {});
    }
    return kills;
  };
  const result = await work(advance);
  await kills;
  if (due < VICTIMS.length) throw new Error(`the work ended after ${due} of ${VICTIMS.length} kills`);
  return result;
}
