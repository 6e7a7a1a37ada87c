// The SQL of jobs.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { isUniqueViolation } from '../db/failures.ts';
import { statement } from '../db/statement.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { stateRefusal } from '../machines/rules.ts';
import { isHidden, operationBeforeRunning } from '../machines/running.ts';
import { lockMachine } from '../machines/store.ts';
import { isNoExpiry } from '../operations/store.ts';

export type Admission = { accountId: string; machineId: string; execId: string; name: string; timeoutSec: number };

/** The new job, or the id of an unfinished operation (a create or a start) that the job must wait for. */
export type Admitted = { exec: ExecRow; machine: MachineRow } | { waitsFor: string };

/**
 * Inserts a job's row. The machine's row is locked meanwhile, so parallel starts cannot exceed the limit of 16 running
 * jobs, and no job can start while a stop begins. Throws `not_found`, `conflict`.
 */
export async function admitJob(app: App, admission: Admission): Promise<Admitted> {
  const { accountId, machineId } = admission;
  try {
    const admitted = await inTransaction(app.db, async (tx) => {
      const [machine, [operation], [running]] = await Promise.all([
        lockMachine(tx, machineId),
        selectUnfinished(tx, machineId),
        countRunningJobs(tx, machineId),
      ]);
      if (machine?.account_id !== accountId || isHidden(operation)) throw machineNotFound();
      const waitsFor = operationBeforeRunning(machine, operation, (state) => stateRefusal(state, 'exec'));
      if (waitsFor !== undefined) return { waitsFor };
      if ((running?.jobs ?? 0) >= EXEC_BOUNDS.concurrentJobs) throw tooManyJobs();
      // The commit is sent before the insert is answered. If the insert fails, the commit throws its error.
      const inserted = insertExec(tx, admission);
      inserted.catch(() => undefined);
      return { inserted, machine };
    });
    if (admitted.waitsFor !== undefined) return admitted;
    const [exec] = await admitted.inserted;
    if (!exec) throw new Error('a job was not written');
    return { exec, machine: admitted.machine };
  } catch (error) {
    if (!isUniqueViolation(error, 'execs_pkey')) throw error;
    throw new ServiceError('conflict', 'exec_id was used before on this machine.');
  }
}

const insertExec = statement((db, admission: Admission) =>
  db
    .insertInto('execs')
    .values({
      machine_id: admission.machineId,
      id: admission.execId,
      account_id: admission.accountId,
      name: admission.name,
      timeout_sec: admission.timeoutSec,
      status: 'running',
      exit_code: null,
      signal: null,
    })
    .returningAll(),
);

const selectUnfinished = statement((db, machineId: string) =>
  db
    .selectFrom('operations')
    .select(['id', 'kind', 'undoing'])
    .where('machine_id', '=', machineId)
    .where('finished_at', 'is', null)
    .where(isNoExpiry),
);

const countRunningJobs = statement((db, machineId: string) =>
  db
    .selectFrom('execs')
    .select((is) => is.fn.countAll<number>().as('jobs'))
    .where('machine_id', '=', machineId)
    .where(sql<boolean>`status = 'running'`),
);

const tooManyJobs = () =>
  new ServiceError(
    'conflict',
    `The machine runs ${EXEC_BOUNDS.concurrentJobs} jobs already, which is the limit. Wait for one to end, or cancel one.`,
  );

/** Deletes the row of a job that was never started, so that it does not count toward the limit. */
export async function forgetJob(app: App, machineId: string, execId: string): Promise<void> {
  await app.db.deleteFrom('execs').where('machine_id', '=', machineId).where('id', '=', execId).execute();
}

export type FoundExec = { exec: ExecRow; hostId: string; machineState: MachineRow['state'] };

/**
 * Returns a job of a machine of the account. Throws `not_found`, with the same text whether the machine or the job is
 * missing.
 */
export async function findExec(app: App, accountId: string, machineId: string, execId: string): Promise<FoundExec> {
  const [row] = await selectExec(app.db, machineId, execId, accountId);
  if (!row) throw new ServiceError('not_found', 'There is no such job.');
  const { host_id, machine_state, ...exec } = row;
  return { exec, hostId: host_id, machineState: machine_state };
}

const selectExec = statement((db, machineId: string, execId: string, accountId: string) =>
  db
    .selectFrom('execs')
    .innerJoin('machines', 'machines.id', 'execs.machine_id')
    .selectAll('execs')
    .select(['machines.host_id', 'machines.state as machine_state'])
    .where('execs.machine_id', '=', machineId)
    .where('execs.id', '=', execId)
    .where('execs.account_id', '=', accountId),
);
