// The one way in which machines, volumes and snapshots change their state. A transition writes rows, and everything that
// their changes mean (transitions/effects.ts) follows from the rows before and after, in the same transaction. What a
// change of one row means is in entries.ts, and amounts.ts says what a row counts for.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import type { MachineState } from '@sandbar/contract/machine.ts';
import { type Insertable, sql, type UpdateObject } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { Database, MachineRow, MachineTable, SnapshotRow, VolumeRow, VolumeTable } from '../db/tables.ts';
import { loseRunningJobs } from '../execs/lose.ts';
import { machineUse, promisedMemory, volumeUse } from './amounts.ts';
import { addAmounts, applyEffects, type Effects } from './effects.ts';
import { entriesOfMachine, entriesOfSnapshot, entriesOfVolume, type Told } from './entries.ts';

/** Columns of a machine to change; its times follow from its state. */
export type MachineChange = UpdateObject<Database, 'machines'> & { state?: MachineState };

/** Whose rows change, where they are, and who wanted it. */
export type Scope = { accountId: string; hostId: string; actor: ActivityActor };

/** The steps of a transition. Each writes one row, which the caller has locked, and returns it as it is then. */
export type Steps = {
  insertMachine(row: Insertable<MachineTable>): Promise<MachineRow>;
  /** The running jobs of a machine that does not run any more are lost. `told`: what the entry in the feed says besides the row. */
  changeMachine(before: MachineRow, to: MachineChange, told?: Told): Promise<MachineRow>;
  removeMachine(before: MachineRow): Promise<void>;
  insertVolume(row: Insertable<VolumeTable>): Promise<VolumeRow>;
  changeVolume(before: VolumeRow, to: UpdateObject<Database, 'volumes'>): Promise<VolumeRow>;
  removeVolume(before: VolumeRow): Promise<void>;
  changeSnapshot(before: SnapshotRow, to: UpdateObject<Database, 'snapshots'>): Promise<SnapshotRow>;
  removeSnapshot(before: SnapshotRow): Promise<void>;
  /** Adds entries of jobs that ended with their machine, and of acts that change no state. */
  tell(entries: readonly NewActivity[]): void;
};

/**
 * Runs `work`, which changes rows of one account, and then applies what the changes mean. Throws what `work` throws, and
 * `fleet_capacity` when a machine needs memory that its host does not have.
 */
export async function transition<T>(app: App, tx: Tx, scope: Scope, work: (steps: Steps) => Promise<T>): Promise<T> {
  const { accountId, hostId, actor } = scope;
  const effects: Effects = { accountId, hostId, entries: [], use: {}, memoryMb: 0 };
  const note = (entries: readonly NewActivity[], before: Counted, after: Counted) => {
    effects.entries.push(...entries);
    effects.use = addAmounts(addAmounts(effects.use, after.use), before.use, -1);
    effects.memoryMb += after.memoryMb - before.memoryMb;
  };
  const noteMachine = (before: MachineRow | undefined, after: MachineRow | undefined, told: Told = {}) =>
    note(entriesOfMachine(before, after, actor, told), countMachine(before), countMachine(after));
  const noteVolume = (before: VolumeRow | undefined, after: VolumeRow | undefined) =>
    note(entriesOfVolume(before, after, actor), countVolume(before), countVolume(after));
  const noteSnapshot = (before: SnapshotRow, after: SnapshotRow | undefined) =>
    note(entriesOfSnapshot(before, after, actor), NOTHING, NOTHING);

  const result = await work({
    insertMachine: async (row) => {
      const after = await tx.insertInto('machines').values(row).returningAll().executeTakeFirstOrThrow();
      noteMachine(undefined, after);
      return after;
    },
    changeMachine: async (before, to, told) => {
      if (leavesRunning(before, to)) effects.entries.push(...(await loseRunningJobs(tx, before.id)));
      const set = { ...to, ...timesOf(before, to) };
      const query = tx.updateTable('machines').set(set).where('id', '=', before.id).returningAll();
      const after = await query.executeTakeFirstOrThrow();
      noteMachine(before, after, told);
      return after;
    },
    removeMachine: async (before) => {
      await tx.deleteFrom('machines').where('id', '=', before.id).execute();
      noteMachine(before, undefined);
    },
    insertVolume: async (row) => {
      const after = await tx.insertInto('volumes').values(row).returningAll().executeTakeFirstOrThrow();
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
  await applyEffects(tx, effects, app.config.memoryOvercommit);
  return result;
}

const leavesRunning = (before: MachineRow, { state }: MachineChange): boolean =>
  before.state === 'running' && state !== undefined && state !== 'running';

/** The times that a machine's new state sets. */
function timesOf(before: MachineRow, { state }: MachineChange): MachineChange {
  const now = sql<Date>`now()`;
  if (state === undefined || state === before.state) return {};
  if (state === 'running') return { started_at: now };
  if (state === 'destroyed') return { destroyed_at: now };
  return before.state === 'running' ? { stopped_at: now } : {};
}

type Counted = { use: ReturnType<typeof machineUse>; memoryMb: number };
const NOTHING: Counted = { use: {}, memoryMb: 0 };

const countMachine = (row: MachineRow | undefined): Counted =>
  row ? { use: machineUse(row), memoryMb: promisedMemory(row) } : NOTHING;
const countVolume = (row: VolumeRow | undefined): Counted => (row ? { use: volumeUse(row), memoryMb: 0 } : NOTHING);
