// The last step of a start: creates a machine, runs a command in it and destroys it, so "ready" means that this works.

import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@sandbar/sdk/client.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import type { Credentials } from './credentials.ts';
import { messageOf, Problem } from './problem.ts';
import { formatDuration, type Progress } from './progress.ts';

/** A first boot under emulation takes 2 to 4 s, and several times that on a busy host. */
const COMMAND_TIMEOUT_SEC = 60;
const HOST_WITHIN_MS = 10_000;
const HOST_POLL_MS = 30;

/** Throws Problem that says which step failed. */
export async function checkWithMachine(
  { base_url, api_key }: Credentials,
  logs: string,
  progress: Progress,
): Promise<void> {
  // Switch off the client's own retries, because `onceHostAnswers` retries sooner than the client would.
  const sandbar = new Client({ baseUrl: base_url, apiKey: api_key, retryForSec: 0 });
  const times: string[] = [];
  const timed = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    const began = performance.now();
    const result = await work().catch((error: unknown) => {
      throw describe(what, error, logs);
    });
    times.push(`${what} ${formatDuration(performance.now() - began)}`);
    return result;
  };

  const kernel = await progress.step('test machine', async () => {
    const machine = await timed('create', () =>
      onceHostAnswers(() => sandbar.machines.create({ name: 'self-check', memory_mb: 256, rootfs_size_gb: 2 })),
    );
    try {
      return await timed('run', async () => {
        const job = await sandbar.execs.start(machine.id, { argv: ['uname', '-r'], timeout_sec: COMMAND_TIMEOUT_SEC });
        const ended = await sandbar.execs.wait(machine.id, job.id);
        const page = await sandbar.execs.output(machine.id, job.id, { stream: 'stdout' });
        const text = Buffer.from(page.data, 'base64').toString().trim();
        if (ended.status !== 'exited' || ended.exit_code !== 0 || text === '') {
          throw new Error(`uname -r ended as ${ended.status} with ${ended.exit_code ?? ended.signal}`);
        }
        return text;
      });
    } finally {
      await timed('destroy', () => sandbar.machines.destroy(machine.id));
    }
  });
  progress.say(`    Linux ${kernel}: ${times.join(', ')}`);
}

/** Repeats the first call, because the control plane answers a few milliseconds before it has found the host agent. */
async function onceHostAnswers<T>(work: () => Promise<T>): Promise<T> {
  for (const until = performance.now() + HOST_WITHIN_MS; ; await delay(HOST_POLL_MS)) {
    try {
      return await work();
    } catch (error) {
      const isEarly = error instanceof SandbarError && error.code === 'host_unavailable';
      if (!isEarly || performance.now() > until) throw error;
    }
  }
}

function describe(what: string, error: unknown, logs: string): Problem {
  if (error instanceof SandbarError && error.status === 401) {
    return new Problem(
      'The service does not know the key in credentials.json: move that file away and run npm start again, which makes a new key',
    );
  }
  return new Problem(
    `The test machine failed (${what}: ${messageOf(error)}): look into ${logs}/host-agent.log and control-plane.log`,
  );
}
