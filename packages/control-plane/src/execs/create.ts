// Starts a job: one transaction takes one of the machine's 16 places, then the host starts the job. When the host refuses,
// the place is freed. When the connection breaks, so that nobody knows whether the job started, the host is asked once more;
// after that the reconciler finds out.

import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  EXEC_BOUNDS,
  type ExecCreate,
  type ExecOutput,
  type ExecStarted,
  OUTPUT_STREAMS,
} from '@sandbar/contract/exec.ts';
import type { JobReport, StartJob } from '@sandbar/contract/host-api.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { checkArgv } from './check.ts';
import { toExec } from './record.ts';
import { settleJob } from './settle.ts';
import { type Admission, admitJob, forgetJob } from './store.ts';

/** `waitMs`: how long the answer may wait for the end of the job; undefined for an answer at once, without output. */
export type Waiting = { waitMs: number | undefined; signal: AbortSignal };

/**
 * Starts a job in a machine of the account. It waits up to 30 s for a machine that is on its way to running. Throws
 * `validation_error`, `not_found`, `conflict`, `host_unavailable`.
 */
export async function createExec(
  app: App,
  accountId: string,
  machineId: string,
  body: ExecCreate,
  { waitMs, signal }: Waiting,
): Promise<ExecStarted> {
  checkStdin(body.stdin ?? '');
  checkArgv(body.argv);
  const { exec_id, ...rest } = body;
  const timeoutSec = body.timeout_sec ?? EXEC_BOUNDS.timeoutSecDefault;
  const { exec, machine } = await admitJob(app, {
    accountId,
    machineId,
    execId: exec_id?.toLowerCase() ?? uuidv7(),
    timeoutSec,
  });
  const job: StartJob = { ...rest, timeout_sec: timeoutSec, generation: machine.generation };
  const report = await startOnHost(app, machine.host_id, { machineId: machine.id, jobId: exec.id, job });
  const settled = await settleJob(app.db, report);
  return toExec(settled ?? exec, { timeoutSec, report });
}

async function admitWhenRunning(app: App, admission: Admission): Promise<{ exec: ExecRow; machine: MachineRow }> {
  const deadline = performance.now() + app.config.timing.runningWaitMs;
  for (;;) {
    const admitted = await admitJob(app, admission);
    if ('exec' in admitted) return admitted;
    await waitForOperation(app, admitted.waitsFor, deadline);
  }
}

async function startOnHost(app: App, machine: MachineRow, { id }: ExecRow, job: StartJob): Promise<JobReport> {
  const client = app.hosts.client(machine.host_id);
  try {
    return await client.startJob(machine.id, id, job);
  } catch (error) {
    const outcomeUnknown = error instanceof HostUnavailable && error.mayHaveActed;
    const started = outcomeUnknown ? await client.getJob(machine.id, id, 0).catch(() => undefined) : undefined;
    if (started) return started;
    if (outcomeUnknown) app.reconcileSoon();
    else await forgetJob(app, machine.id, id);
    throw error;
  }
}

/** Throws `validation_error`. The schema bounds the length of the base64 text, which can hold one byte more than allowed. */
function checkStdin(stdin: string): void {
  if (Buffer.byteLength(stdin, 'base64') > EXEC_BOUNDS.stdinBytes) {
    throw new ServiceError('validation_error', `stdin must be at most ${EXEC_BOUNDS.stdinBytes} bytes when decoded.`);
  }
}
