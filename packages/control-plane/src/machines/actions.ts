// Starts, stops and destroys a machine at the request of its account. A client may repeat each request: it joins an
// unfinished operation of the same kind, and it changes nothing when the machine is already in the requested state.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { v7 as uuidv7 } from 'uuid';
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { checkMayRun } from '../billing/check.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, OperationArguments } from '../db/tables.ts';
import { moveToStart } from '../moves/move-to-start.ts';
import { type Begun, requestOperation } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { machineIsDestroyed, machineNotFound } from './refusals.ts';
import { checkAction } from './rules.ts';
import { bumpGeneration, findMachine, hasSnapshots, type MachineView } from './store.ts';
import { admitsAccount, emulatedOnly } from './tenancy.ts';

type MachineKind = 'start' | 'stop' | 'destroy';

/**
 * Starts a machine of the account and waits until it runs. If its host has no room for it, it moves to another host
 * first. Throws `not_found`, `conflict`, `insufficient_balance`,
 * `fleet_capacity`, `host_unavailable`. Throws `forbidden` when the account is no longer allowed to run machines on the
 * machine's host (machines/tenancy.ts).
 */
export async function startMachine(app: App, accountId: string, id: string): Promise<MachineView> {
  await findMachine(app, accountId, id);
  const deadline = performance.now() + app.config.timing.operationWaitMs;
  for (let round = 1; ; round++) {
    try {
      await requestStart(app, accountId, id);
      break;
    } catch (error) {
      const isFull = error instanceof ServiceError && error.code === 'fleet_capacity';
      if (!isFull || round > MOVES_MAX || !(await moveToStart(app, id, deadline))) throw error;
    }
  }
  return findMachine(app, accountId, id);
}

/** How often a start moves the machine. The room on its new host is not reserved until it starts there. */
const MOVES_MAX = 2;

async function requestStart(app: App, accountId: string, id: string): Promise<void> {
  await requestOperation(app, {
    ...asked('start', id),
    begin: async (tx, machine) => {
      if (!machine) throw machineNotFound();
      if (checkAction(machine.state, 'start') === 'noop') return 'noop';
      await checkMayStart(app, tx, machine);
      const scope = { accountId, hostId: machine.host_id, actor: 'user' } as const;
      const bumped = { state: 'provisioning', generation: machine.generation + 1 } as const;
      await transition(app, tx, scope, (steps) => steps.changeMachine(machine, bumped));
      return insertClaimed(app, tx, operationOf('start', machine, 'user'));
    },
  });
}

async function checkMayStart(app: App, tx: Tx, machine: MachineRow): Promise<void> {
  const account = await getAccount(tx, machine.account_id);
  if (!admitsAccount(app, machine, account)) throw emulatedOnly();
  checkMayRun(account);
}

/**
 * Stops a machine of the account and waits until it is stopped. Throws `not_found`, `conflict`, or `host_unavailable`;
 * in the last case the reconciler stops the machine later.
 */
export async function stopMachine(
  app: App,
  accountId: string,
  id: string,
  actor: ActivityActor = 'user',
): Promise<MachineView> {
  await findMachine(app, accountId, id);
  await requestOperation(app, {
    ...asked('stop', id),
    begin: (tx, machine) => {
      if (!machine) throw machineNotFound();
      return beginStop(app, tx, machine, actor);
    },
  });
  return findMachine(app, accountId, id);
}

/**
 * Inserts a stop operation. The caller has locked the machine and checked that it has no unfinished operation. Returns
 * `noop` when the machine is stopped already. Throws `conflict` when the machine's state does not allow a stop.
 */
export async function beginStop(app: App, tx: Tx, machine: MachineRow, actor: ActivityActor): Promise<Begun> {
  if (checkAction(machine.state, 'stop') === 'noop') return 'noop';
  const [claimed] = await Promise.all([
    insertClaimed(app, tx, operationOf('stop', machine, actor)),
    bumpGeneration(tx, machine.id),
  ]);
  return claimed;
}

export type DestroyOptions = {
  /** Keep the root disk as a volume. */
  preserveStorage?: boolean;
  /** Delete the machine's snapshots too. */
  deleteSnapshots?: boolean;
};

/**
 * Destroys a machine of the account in any state and cancels its unfinished operation. Throws `not_found` when the
 * machine is destroyed already; `conflict` when it has snapshots and `deleteSnapshots` is not set, or when the disk to
 * keep is lost; `host_unavailable` when the host does not answer, and then the reconciler destroys the machine later.
 */
export async function destroyMachine(
  app: App,
  accountId: string,
  id: string,
  options: DestroyOptions = {},
): Promise<MachineView> {
  const found = await findMachine(app, accountId, id);
  if (found.state === 'destroyed') throw machineIsDestroyed(found.destroyed_at);
  await requestOperation(app, {
    ...asked('destroy', id),
    begin: async (tx, machine) => {
      if (!machine) throw machineNotFound();
      if (machine.state === 'destroyed') throw machineIsDestroyed(machine.destroyed_at);
      if (!options.deleteSnapshots && (await hasSnapshots(tx, id))) throw mustDeleteSnapshots();
      return beginDestroy(app, tx, machine, 'user', options);
    },
  });
  return findMachine(app, accountId, id);
}

/** Inserts a destroy operation. The caller has locked the machine and checked that it has no unfinished operation. */
export async function beginDestroy(
  app: App,
  tx: Tx,
  machine: MachineRow,
  actor: ActivityActor,
  { preserveStorage = false }: DestroyOptions,
): Promise<Begun> {
  // A machine that never ran has not used its root volume, so the volume is always returned to the account.
  const untouched = machine.started_at === null ? machine.root_volume_id : null;
  const keep = untouched ?? (preserveStorage ? uuidv7() : undefined);
  const args: OperationArguments = keep === undefined ? {} : { keep_volume_id: keep };
  const [claimed] = await Promise.all([
    insertClaimed(app, tx, operationOf('destroy', machine, actor, args)),
    bumpGeneration(tx, machine.id),
  ]);
  return claimed;
}

const asked = (kind: MachineKind, id: string) => ({
  kind,
  machine_id: id,
  volume_id: null,
  snapshot_id: null,
  args: {},
});

const operationOf = (kind: MachineKind, machine: MachineRow, actor: ActivityActor, args: OperationArguments = {}) => ({
  ...asked(kind, machine.id),
  account_id: machine.account_id,
  host_id: machine.host_id,
  actor,
  args: JSON.stringify(args),
});

const mustDeleteSnapshots = (): ServiceError =>
  new ServiceError(
    'conflict',
    'The machine has snapshots: delete them first, or with the machine by delete_snapshots=true.',
  );
