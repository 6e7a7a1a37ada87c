// The only code that changes the state of machines, volumes and snapshots. A transition writes the rows. From the rows
// before and after the change it derives activity entries (entries.ts), quota amounts (amounts.ts) and what is metered
// (metered.ts). It writes these in the same transaction (effects.ts).
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import { type Insertable, sql, type UpdateObject } from 'kysely';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { Database, MachineRow, MachineTable, SnapshotRow, VolumeRow, VolumeTable } from '../db/tables.ts';
import { loseRunningJobs } from '../execs/lose.ts';
import { addRoom, NO_ROOM, type Room } from '../hosts/room.ts';
import { machineRoom, machineUse, volumeRoom, volumeUse } from './amounts.ts';
import { addAmounts, applyEffects, type Effects } from './effects.ts';
import { entriesOfMachine, entriesOfSnapshot, entriesOfVolume, type Told } from './entries.ts';
import { type MeterChange, meterChange, meteredMachine, meteredSnapshot, meteredVolume } from './metered.ts';

/**
 * The columns of a machine to change. `started_at`, `stopped_at` and `destroyed_at` are set automatically when the
 * state changes.
 */
export type MachineChange = UpdateObject<Database, 'machines'> & { state?: MachineState };

/** The account that owns the rows, the host that they are on, and the actor who asked for the change. */
export type Scope = { accountId: string; hostId: string; actor: ActivityActor };

/**
 * The changes that a transition can make. Each function writes one row and returns the new row. The caller must have
 * locked the row.
 */
export type Steps = {
  /**
   * Changes a machine. If it stops running, its running jobs are recorded as lost. `told`: details for the activity
   * entry that the row does not have.
   */
  changeMachine(before: MachineRow, to: MachineChange, told?: Told): Promise<MachineRow>;
  removeMachine(before: MachineRow): Promise<void>;
  insertVolume(row: Insertable<VolumeTable>): Promise<VolumeRow>;
  changeVolume(before: VolumeRow, to: UpdateObject<Database, 'volumes'>): Promise<VolumeRow>;
  removeVolume(before: VolumeRow): Promise<void>;
  changeSnapshot(before: SnapshotRow, to: UpdateObject<Database, 'snapshots'>): Promise<SnapshotRow>;
  removeSnapshot(before: SnapshotRow): Promise<void>;
  /**
   * Adds activity entries for events that change no row here, such as a restore or jobs that were lost with their
   * machine.
   */
  tell(entries: readonly NewActivity[]): void;
};

/**
 * Runs `work`, which changes rows of one account, and then applies the effects of these changes. Returns the result of
 * `work`. Throws errors of `work`, and `fleet_capacity` when the host has too little room for the machine or volume.
 */
export async function transition<T>(app: App, tx: Tx, scope: Scope, work: (steps: Steps) => Promise<T>): Promise<T> {
  const { accountId, hostId, actor } = scope;
  const effects: Effects = { accountId, hostId, entries: [], use: {}, meters: [], room: NO_ROOM, isNewOnHost: false };
  const note = (entries: readonly NewActivity[], before: Counted, after: Counted, metered: MeterChange | undefined) => {
    effects.entries.push(...entries);
    if (metered) effects.meters.push(metered);
    effects.use = addAmounts(addAmounts(effects.use, after.use), before.use, -1);
    effects.room = addRoom(addRoom(effects.room, after.room), before.room, -1);
  };
  const noteMachine = (before: MachineRow | undefined, after: MachineRow | undefined, told: Told = {}) =>
    note(
      entriesOfMachine(before, after, actor, told),
      countMachine(before),
      countMachine(after),
      machineMeter(before, after),
    );
  const noteVolume = (before: VolumeRow | undefined, after: VolumeRow | undefined) =>
    note(entriesOfVolume(before, after, actor), countVolume(before), countVolume(after), volumeMeter(before, after));
  const noteSnapshot = (before: SnapshotRow, after: SnapshotRow | undefined) =>
    note(entriesOfSnapshot(before, after, actor), NOTHING, NOTHING, snapshotMeter(before, after));

  const result = await work({
    changeMachine: async (before, to, told) => {
      if (leavesRunning(before, to)) effects.entries.push(...(await loseRunningJobs(tx, before.id)));
      const set = { ...to, ...timesOf(before, to) };
      const query = tx.updateTable('machines').set(set).where('id', '=', before.id).returningAll();
      const after = await query.executeTakeFirstOrThrow();
      noteMachine(before, after, told);
      return after;
    },
    removeMachine: async (before) => {
      // With the row, PostgreSQL deletes the machine's idempotency key, and keys are locked after the account.
      const deletion = tx.deleteFrom('machines').where('id', '=', before.id);
      await Promise.all([lockAccount(tx, accountId), deletion.execute()]);
      noteMachine(before, undefined);
    },
    insertVolume: async (row) => {
      const after = await tx.insertInto('volumes').values(row).returningAll().executeTakeFirstOrThrow();
      effects.isNewOnHost ||= after.state === 'creating';
      noteVolume(undefined, after);
      return after;
    },
    changeVolume: async (before, to) => {
      const query = tx.updateTable('volumes').set(to).where('id', '=', before.id).returningAll();
      const after = await query.executeTakeFirstOrThrow();
      noteVolume(before, after);
      return after;
    },
    removeVolume: async (before) => {
      await tx.deleteFrom('volumes').where('id', '=', before.id).execute();
      noteVolume(before, undefined);
    },
    changeSnapshot: async (before, to) => {
      const query = tx.updateTable('snapshots').set(to).where('id', '=', before.id).returningAll();
      const after = await query.executeTakeFirstOrThrow();
      noteSnapshot(before, after);
      return after;
    },
    removeSnapshot: async (before) => {
      await tx.deleteFrom('snapshots').where('id', '=', before.id).execute();
      noteSnapshot(before, undefined);
    },
    tell: (entries) => void effects.entries.push(...entries),
  });
  await applyEffects(tx, effects, app.config.overcommit);
  return result;
}

/**
 * Inserts a machine and applies the effects of that. All statements are sent at once. `taken`: the root volume that
 * becomes the machine's disk. `attached`: data volumes that the machine gets when it runs; until then, their rows only
 * name the machine. Throws `fleet_capacity` when the host does not take the machine.
 */
export async function insertMachine(
  app: App,
  tx: Tx,
  { accountId, hostId }: Omit<Scope, 'actor'>,
  row: NewMachine,
  { taken, attached }: { taken: VolumeRow | undefined; attached: readonly MachineVolume[] },
): Promise<MachineRow> {
  const machine = countMachine(row);
  // Neither the new machine nor the taken volume changes what is metered, so there is no meter to switch. A taken volume
  // counts as zero in the quota, so subtract what the volume counted before.
  const volume = countVolume(taken);
  const use = addAmounts(machine.use, volume.use, -1);
  const room = addRoom(machine.room, volume.room, -1);
  const [[inserted]] = await Promise.all([
    insertMachineRow(tx, row),
    taken && takeVolume(tx, taken.id, row.id),
    attached.length > 0 && claimVolumes(tx, row.id, attached),
    applyEffects(
      tx,
      { accountId, hostId, entries: [], use, meters: [], room, isNewOnHost: true },
      app.config.overcommit,
    ),
  ]);
  if (!inserted) throw new Error('a machine was not written');
  return inserted;
}

const takeVolume = statement((db, id: string, machineId: string) =>
  db.updateTable('volumes').set({ state: 'taken', machine_id: machineId }).where('id', '=', id),
);

/** Writes the machine and the mount paths into the rows of data volumes, in one statement. */
async function claimVolumes(tx: Tx, machineId: string, volumes: readonly MachineVolume[]): Promise<void> {
  await sql`
    update volumes set machine_id = ${machineId}, mount_path = claimed.mount_path
    from jsonb_to_recordset(${JSON.stringify(volumes)}::jsonb) as claimed (volume_id uuid, mount_path text)
    where volumes.id = claimed.volume_id`.execute(tx);
}

/** The columns that a new machine has; its other columns are set when it runs. */
export type NewMachine = Required<
  Omit<Insertable<MachineTable>, 'private_ip' | 'error' | 'started_at' | 'stopped_at' | 'destroyed_at'>
>;

const insertMachineRow = statement((db, row: NewMachine) =>
  db
    .insertInto('machines')
    .values({
      id: row.id,
      account_id: row.account_id,
      host_id: row.host_id,
      name: row.name,
      state: row.state,
      generation: row.generation,
      vcpus: row.vcpus,
      memory_mb: row.memory_mb,
      rootfs_size_gb: row.rootfs_size_gb,
      stack: row.stack,
      metadata: row.metadata,
      env: row.env,
      isolation: row.isolation,
      error: null,
      on_expiry: row.on_expiry,
      snapshot_id: row.snapshot_id,
      root_volume_id: row.root_volume_id,
    })
    .returningAll(),
);

const leavesRunning = (before: MachineRow, { state }: MachineChange): boolean =>
  before.state === 'running' && state !== undefined && state !== 'running';

/** Returns the time columns that the change to a new state sets. */
function timesOf(before: MachineRow, { state }: MachineChange): MachineChange {
  const now = sql<Date>`now()`;
  if (state === undefined || state === before.state) return {};
  if (state === 'running') return { started_at: now };
  if (state === 'destroyed') return { destroyed_at: now };
  return before.state === 'running' ? { stopped_at: now } : {};
}

function machineMeter(before: MachineRow | undefined, after: MachineRow | undefined): MeterChange | undefined {
  const row = after ?? before;
  const about = row && { resourceKind: 'machine' as const, resourceId: row.id, metadata: row.metadata };
  return about && meterChange(about, before && meteredMachine(before), after && meteredMachine(after));
}

function volumeMeter(before: VolumeRow | undefined, after: VolumeRow | undefined): MeterChange | undefined {
  const row = after ?? before;
  const about = row && { resourceKind: 'volume' as const, resourceId: row.id, metadata: {} };
  return about && meterChange(about, before && meteredVolume(before), after && meteredVolume(after));
}

function snapshotMeter(before: SnapshotRow, after: SnapshotRow | undefined): MeterChange | undefined {
  const about = { resourceKind: 'snapshot' as const, resourceId: before.id, metadata: {} };
  return meterChange(about, meteredSnapshot(before), after && meteredSnapshot(after));
}

type Counted = { use: ReturnType<typeof machineUse>; room: Room };
const NOTHING: Counted = { use: {}, room: NO_ROOM };

const countMachine = (row: Parameters<typeof machineRoom>[0] | undefined): Counted =>
  row ? { use: machineUse(row), room: machineRoom(row) } : NOTHING;
const countVolume = (row: VolumeRow | undefined): Counted =>
  row ? { use: volumeUse(row), room: volumeRoom(row) } : NOTHING;
