// SQL of jobs.

import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec.ts';
import { MACHINE_STATE_TABLE, MACHINE_STATES } from '@sandbar/contract/machine.ts';
import type { App } from '../app.ts';
import { isUniqueViolation } from '../db/database.ts';
import { prepare, transact } from '../db/prepared.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';
import { MACHINE_COLUMNS } from '../machines/columns.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { checkAction } from '../machines/transition.ts';
import { EXEC_COLUMNS } from './columns.ts';

export type Admission = { accountId: string; machineId: string; execId: string; timeoutSec: number };

const lockMachine = prepare<MachineRow>(
  'lock_machine_for_exec',
  `select ${MACHINE_COLUMNS} from machines
   where id = $1 and account_id = $2 and desired <> 'discarded' for no key update`,
);

const STATES = MACHINE_STATES.filter((state) => MACHINE_STATE_TABLE[state].exec === 'allowed');

/** Runs behind `lockMachine` and sees what was committed until then. */
const insertExec = prepare<ExecRow>(
  'insert_exec',
  `insert into execs (machine_id, id, account_id, status, timeout_sec)
   select machines.id, $3, account_id, 'running', $4::int from machines
   where machines.id = $1 and account_id = $2 and desired = 'running'
     and state in (${STATES.map((state) => `'${state}'`).join(', ')})
     and (select count(*) from execs where machine_id = $1 and status = 'running') < ${EXEC_BOUNDS.concurrentJobs}
   returning ${EXEC_COLUMNS}`,
);

/**
 * Makes the row of a job. The machine's row is locked meanwhile, so that the seventeenth of many starts at once is
 * refused and no job slips in behind a stop. Throws `not_found`, `conflict`.
 */
export async function admitJob(app: App, admission: Admission): Promise<{ exec: ExecRow; machine: MachineRow }> {
  const { accountId, machineId, execId, timeoutSec } = admission;
  try {
    const [[machine], [exec]] = await transact(
      app.db,
      [lockMachine, [machineId, accountId]],
      [insertExec, [machineId, accountId, execId, timeoutSec]],
    );
    if (!machine) throw machineNotFound();
    if (exec) return { exec, machine };
    checkAction(machine.state, 'exec');
    if (machine.desired !== 'running') throw new ServiceError('conflict', 'The machine is being stopped or deleted.');
    throw tooManyJobs();
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

const selectExec = prepare<ExecRow & { host_id: string; machine_state: MachineRow['state'] }>(
  'find_exec',
  `select execs.*, host_id, state as machine_state
   from (select ${EXEC_COLUMNS} from execs where machine_id = $1 and id = $2 and account_id = $3) as execs
     join machines on machines.id = execs.machine_id`,
);

/** A job of a machine of the account. Throws `not_found`, in the same words whatever is missing. */
export async function findExec(app: App, accountId: string, machineId: string, execId: string): Promise<FoundExec> {
  const [row] = await selectExec(app.db, [machineId, execId, accountId]);
  if (!row) throw new ServiceError('not_found', 'There is no such job.');
  const { host_id, machine_state, ...exec } = row;
  return { exec, hostId: host_id, machineState: machine_state };
}
