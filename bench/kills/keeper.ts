// Keeps one machine that is never killed, to see whether the service works: reading the output of its job needs the
// control plane, PostgreSQL and the host agent.
import { setTimeout as delay } from 'node:timers/promises';
import { rootOf, settleJobs, startWriter } from './acts/jobs.ts';
import { createMachine } from './acts/machines.ts';
import type { ClientContext } from './client-context.ts';

const POLL_MS = 20;
const ATTEMPT_MS = 60_000;
const GIVE_UP_MS = 600_000;

export type Keeper = {
  /** Resolves when the first request that was sent after this call gets the right output. */
  waitForAnswer(): Promise<void>;
};

export async function startKeeper(context: ClientContext): Promise<Keeper> {
  const machine = await createMachine(context);
  context.casualties.withdraw(machine.id);
  await startWriter(context, machine, rootOf(machine), false);
  const [job] = machine.jobs;
  if (job === undefined) throw new Error('the keeper has no job');
  await settleJobs(context, machine);
  const { baseUrl, apiKey } = context.service;
  const { signal: ending } = context;
  const url = `${baseUrl}/v1/machines/${machine.id}/execs/${job.id}/output?limit=65536`;
  const isAnswered = async () => {
    const signal = AbortSignal.any([ending, AbortSignal.timeout(ATTEMPT_MS)]);
    const response = await fetch(url, { headers: { authorization: `Bearer ${apiKey}` }, signal });
    const { data } = (await response.json()) as { data?: string };
    return response.ok && Buffer.from(data ?? '', 'base64').equals(job.stdout);
  };
  return {
    async waitForAnswer() {
      for (const until = performance.now() + GIVE_UP_MS; ; await delay(POLL_MS, undefined, { signal: ending })) {
        if (await isAnswered().catch(() => false)) return;
        if (performance.now() > until)
          throw new Error(`the service did not answer in ${GIVE_UP_MS / 1000} s after a kill`);
      }
    },
  };
}
