// Start of a job: a place among the 16 (one transaction), then the host starts it. A refusal frees the place; an unknown
// outcome is asked for once, and after that left to the reconciler.

import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS, type Exec, type ExecCreate } from '@sandbar/contract/exec.ts';
import type { JobReport, StartJob } from '@sandbar/contract/host-api.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { toExec } from './record.ts';
import { settleJob } from './settle.ts';
import { admitJob, forgetJob } from './store.ts';

/** Starts a job in a running machine of the account. Throws `validation_error`, `not_found`, `conflict`, `host_unavailable`. */
export async function createExec(app: App, accountId: string, machineId: string, body: ExecCreate): Promise<Exec> {
  checkStdin(body.stdin ?? '');
  const { exec_id, ...rest } = body;
  const job: StartJob = { ...rest, timeout_sec: body.timeout_sec ?? EXEC_BOUNDS.timeoutSecDefault };
  const { exec, machine } = await admitJob(app, {
    accountId,
    machineId,
    execId: exec_id?.toLowerCase() ?? uuidv7(),
    timeoutSec: job.timeout_sec,
  });
  const report = await startOnHost(app, machine.host_id, { machineId: machine.id, jobId: exec.id, job });
  const settled = await settleJob(app.db, report);
  return toExec(settled ?? exec, { timeoutSec: job.timeout_sec, report });
}

type Start = { machineId: string; jobId: string; job: StartJob };

async function startOnHost(app: App, hostId: string, { machineId, jobId, job }: Start): Promise<JobReport> {
  try {
    return await app.hosts.client(hostId).startJob(machineId, jobId, job);
  } catch (error) {
    const outcomeUnknown = error instanceof HostUnavailable && error.mayHaveActed;
    const started = outcomeUnknown
      ? await app.hosts
          .client(hostId)
          .getJob(machineId, jobId, 0)
          .catch(() => undefined)
      : undefined;
    if (started) return started;
    if (outcomeUnknown) app.reconcileSoon();
    else await forgetJob(app, machineId, jobId);
    throw error;
  }
}

/** Throws `validation_error`: the schema bounds the text, which can hold one byte more than it may. */
function checkStdin(stdin: string): void {
  if (Buffer.byteLength(stdin, 'base64') > EXEC_BOUNDS.stdinBytes) {
    throw new ServiceError('validation_error', `stdin must be at most ${EXEC_BOUNDS.stdinBytes} bytes when decoded.`);
  }
}
