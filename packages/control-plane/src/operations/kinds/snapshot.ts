// The snapshot operation: the host takes the snapshot, whose row exists already but is hidden from clients. A snapshot
// that fails or is interrupted is deleted, because no client has seen it yet.
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

/**
 * The operation that deletes a snapshot. The request has already hidden the snapshot's row. The host deletes the files,
 * then the row is deleted. The operation is repeated until it succeeds.
 */
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
