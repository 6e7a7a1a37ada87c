// SQL of jobs.

import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec.ts';
import type { App } from '../app.ts';
import { isUniqueViolation } from '../db/database.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { checkAction } from '../machines/transition.ts';

export type Admission = { accountId: string; machineId: string; execId: string; timeoutSec: number };

/**
 * Makes the row of a job. The machine's row is locked meanwhile, so that the seventeenth of many starts at once is
 * refused and no job slips in behind a stop. Throws `not_found`, `conflict`.
 */
export async function admitJob(app: App, admission: Admission): Promise<{ exec: ExecRow; machine: MachineRow }> {
  const { accountId, machineId, execId, timeoutSec } = admission;
  try {
    return await app.db.transaction().execute(async (tx) => {
      const machine = await tx
        .selectFrom('machines')
        .selectAll()
        .where('id', '=', machineId)
        .where('account_id', '=', accountId)
        .where('desired', '<>', 'discarded')
        .forNoKeyUpdate()
        .executeTakeFirst();
      if (!machine) throw machineNotFound();
      checkAction(machine.state, 'exec');
      if (machine.desired !== 'running') throw new ServiceError('conflict', 'The machine is being stopped or deleted.');
      const { running } = await tx
        .selectFrom('execs')
        .select((expression) => expression.fn.countAll<number>().as('running'))
        .where('machine_id', '=', machineId)
        .where('status', '=', 'running')
        .executeTakeFirstOrThrow();
      if (running >= EXEC_BOUNDS.concurrentJobs) throw tooManyJobs();
      const exec = await tx
        .insertInto('execs')
        .values({
          machine_id: machineId,
          id: execId,
          account_id: accountId,
          status: 'running',
          timeout_sec: timeoutSec,
        })
        .returningAll()
        .executeTakeFirstOrThrow();
      return { exec, machine };
    });
  } catch (error) {
    if (!isUniqueViolation(error, 'execs_pkey')) throw error;
    throw new ServiceError('conflict', 'exec_id was used before on this machine.');
  }
}

const tooManyJobs = () =>
  new ServiceError(
    'conflict',
    `The machine runs ${EXEC_BOUNDS.concurrentJobs} jobs already, which is the limit. Wait for one to end, or cancel one.`,
  );

/** Frees the place of a job that was never started. */
export async function forgetJob(app: App, machineId: string, execId: string): Promise<void> {
  await app.db.deleteFrom('execs').where('machine_id', '=', machineId).where('id', '=', execId).execute();
}

export type FoundExec = { exec: ExecRow; hostId: string; machineState: MachineRow['state'] };

/** A job of a machine of the account. Throws `not_found`, in the same words whatever is missing. */
export async function findExec(app: App, accountId: string, machineId: string, execId: string): Promise<FoundExec> {
  const row = await app.db
    .selectFrom('execs')
    .innerJoin('machines', 'machines.id', 'execs.machine_id')
    .selectAll('execs')
    .select(['machines.host_id', 'machines.state'])
    .where('execs.machine_id', '=', machineId)
    .where('execs.id', '=', execId)
    .where('execs.account_id', '=', accountId)
    .executeTakeFirst();
  if (!row) throw new ServiceError('not_found', 'There is no such job.');
  const { host_id, state, ...exec } = row;
  return { exec, hostId: host_id, machineState: state };
}
