// Acts on a job that its host or its machine may not know yet. The row of a job says `running` from the moment in which
// its start was admitted, and the start may still be on its way to the machine then. A cancel, a signal or stdin that
// overtakes the start must not be lost, so it is sent again until the machine has the job.
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { settleJob } from './settle.ts';
import { type FoundExec, findExec } from './store.ts';

/**
 * How long a request waits for the start that it has overtaken, in milliseconds. The call that starts a job at its host
 * has the same time-out.
 */
const START_MS = 10_000;
const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 200;

/**
 * Calls `act` until it does not throw `not_found`, and returns its result. Returns undefined if the job has ended,
 * which is then recorded in its row. Throws `not_found` if the job was never started, `host_unavailable` if the machine
 * does not have the job in time, and the other errors of `act`.
 */
export async function actOnStartedJob<T>(app: App, found: FoundExec, act: () => Promise<T>): Promise<T | undefined> {
  const { account_id, machine_id, id } = found.exec;
  const deadline = performance.now() + START_MS;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      return await act();
    } catch (error) {
      if (!hasCode(error, 'not_found')) throw error;
    }
    const report = await app.hosts.client(found.hostId).getJob(machine_id, id, 0);
    if (report) await settleJob(app.db, report);
    const { exec } = await findExec(app, account_id, machine_id, id);
    if (exec.status !== 'running') return undefined;
    if (performance.now() > deadline || app.closing.aborted) {
      app.compareSoon(found.hostId);
      throw new HostUnavailable(false);
    }
    await sleep(pauseMs, app.closing);
  }
}

const hasCode = (error: unknown, code: ErrorCode): boolean => error instanceof ServiceError && error.code === code;
