// Snapshot: its row is there, hidden, and the host takes it. What fails, or was interrupted, is taken back: nobody has seen
// the snapshot.
import { act, type Definition, machineOf, type Recording, type Work } from '../definition.ts';

export const SNAPSHOT: Definition = {
  act: act(
    async (app, work) => {
      const machine = machineOf(work);
      const { kind } = await app.db
        .selectFrom('snapshots')
        .select('kind')
        .where('id', '=', snapshotIdOf(work))
        .executeTakeFirstOrThrow();
      const wanted = { generation: machine.generation, memory: kind === 'memory' };
      const client = app.hosts.client(machine.host_id);
      return client.takeSnapshot(machine.id, snapshotIdOf(work), wanted, wanted.memory ? machine.memory_mb : 0);
    },
    async (recording, { size_gb, stored_bytes }) => {
      const snapshot = await lockSnapshot(recording);
      if (snapshot) await recording.steps.changeSnapshot(snapshot, { state: 'ready', size_gb, stored_bytes });
    },
  ),
  undo: act(
    (app, work) => app.hosts.client(work.operation.host_id).deleteSnapshot(snapshotIdOf(work)),
    async (recording) => {
      const snapshot = await lockSnapshot(recording);
      if (snapshot) await recording.steps.removeSnapshot(snapshot);
    },
  ),
  afterCrash: 'undo',
};

/** Delete of a snapshot: its row is hidden, the host forgets it, then the row goes. Repeated until it is done. */
export const DELETE_SNAPSHOT: Definition = {
  act: act(
    (app, work) => app.hosts.client(work.operation.host_id).deleteSnapshot(snapshotIdOf(work)),
    async (recording) => {
      const snapshot = await lockSnapshot(recording);
      if (snapshot) await recording.steps.removeSnapshot(snapshot);
    },
  ),
};

function snapshotIdOf({ operation }: Pick<Work, 'operation'>): string {
  if (operation.snapshot_id === null) throw new Error(`The ${operation.kind} ${operation.id} has no snapshot.`);
  return operation.snapshot_id;
}

const lockSnapshot = ({ tx, operation }: Recording) =>
  tx.selectFrom('snapshots').selectAll().where('id', '=', snapshotIdOf({ operation })).forUpdate().executeTakeFirst();
