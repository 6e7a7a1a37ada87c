// How a request meets what is under way. A pure rule; tests/operations.pairs.behaviour.test.ts shows every pair.
import type { OperationRow } from '../db/tables.ts';

/** What a request asks for, in the columns of an operation. */
export type Asked = Pick<OperationRow, 'kind' | 'machine_id' | 'volume_id' | 'snapshot_id' | 'args'>;

/**
 * `join`: the request waits for the operation and gets its result. `wait`: it waits for the end of the operation and then
 * begins. `cancel`: it ends the operation and takes its place. `refuse`: the machine is being deleted.
 */
export type Relation = 'join' | 'wait' | 'cancel' | 'refuse';

export function relate(underWay: Asked & Pick<OperationRow, 'undoing'>, asked: Asked): Relation {
  const isSameMachine = underWay.machine_id !== null && underWay.machine_id === asked.machine_id;
  if (isSameMachine && asked.kind === 'destroy') return underWay.kind === 'destroy' ? 'join' : 'cancel';
  if (isSameMachine && underWay.kind === 'destroy') return 'refuse';
  return isSame(underWay, asked) && !underWay.undoing ? 'join' : 'wait';
}

/** Every snapshot is one of its own, so a second request for a snapshot waits. */
function isSame(a: Asked, b: Asked): boolean {
  return (
    a.kind === b.kind &&
    a.kind !== 'snapshot' &&
    a.machine_id === b.machine_id &&
    a.volume_id === b.volume_id &&
    a.snapshot_id === b.snapshot_id &&
    a.args.mount_path === b.args.mount_path
  );
}
