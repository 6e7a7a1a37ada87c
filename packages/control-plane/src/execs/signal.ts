// Sends a signal to the first process of a running job.
import type { Exec } from '@sandbar/contract/exec.ts';
import { JOB_STATE_TABLE, type JobSignal } from '@sandbar/contract/exec-states.ts';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { callGuest } from '../guest/call.ts';
import type { Caller } from '../http/route-config.ts';
import { getExec } from './get.ts';
import type { JobWaits } from './job-waits.ts';
import { toExec } from './record.ts';
import { actOnStartedJob } from './started-job.ts';
import { findExec } from './store.ts';

const Nothing = Type.Object({}, { additionalProperties: false });

/**
 * Sends the signal to the job and then returns the job. The job may still be running, because the service does not wait
 * for the signal to end it. When the job has already ended, the service sends no signal. Throws `not_found`,
 * `conflict`, `host_unavailable`.
 */
export async function signalExec(
  app: App,
  waits: JobWaits,
  caller: Caller,
  { machineId, execId }: { machineId: string; execId: string },
  name: JobSignal,
  gone: AbortSignal,
): Promise<Exec> {
  const found = await findExec(app, caller.accountId, machineId, execId);
  const { exec } = found;
  if (JOB_STATE_TABLE[exec.status].signal === 'noop') return toExec(exec);
  const params = { id: exec.id, signal: name };
  await actOnStartedJob(app, found, () =>
    callGuest(app, caller, machineId, 'jobs.signal', params, Nothing, { waits: false, signal: gone }),
  );
  return getExec(app, waits, { accountId: caller.accountId, machineId, execId }, 0, gone);
}
