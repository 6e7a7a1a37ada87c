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
  checkCommand(body);
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

/** What the schema cannot say. Throws `validation_error`. */
function checkCommand(body: ExecCreate): void {
  if ((body.command === undefined) === (body.argv === undefined)) {
    throw new ServiceError('validation_error', 'Exactly one of command and argv must be given.');
  }
  for (const name of Object.keys(body.env ?? {})) {
    if (name === '' || name.includes('=')) {
      throw new ServiceError('validation_error', 'env must have names that are not empty and hold no "=".');
    }
  }
  if (body.stdin !== undefined) checkStdin(body.stdin);
}

function checkStdin(stdin: string): void {
  const bytes = Buffer.from(stdin, 'base64');
  // Node decodes leniently; only what encodes back to itself was base64.
  if (bytes.toString('base64') !== stdin) {
    throw new ServiceError('validation_error', 'stdin must be base64 (RFC 4648, with padding, no line breaks).');
  }
  if (bytes.length > EXEC_BOUNDS.stdinBytes) {
    throw new ServiceError('validation_error', `stdin must be at most ${EXEC_BOUNDS.stdinBytes} bytes when decoded.`);
  }
}
