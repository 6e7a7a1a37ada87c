// Decides what a request does about an unfinished operation. This is a pure function; tests/operations.relate.test.ts
// covers every pair.
import type { OperationRow } from '../db/tables.ts';

/** The operation that a request asks for. */
export type Asked = Pick<OperationRow, 'kind' | 'machine_id' | 'volume_id' | 'snapshot_id' | 'args'>;

/**
 * `join`: the request waits for the unfinished operation and returns its result. `wait`: the request waits until the
 * operation ends and then begins its own. `cancel`: the request ends the operation and begins its own. `refuse`: the
 * request is refused because the machine is being deleted. `taken`: it is refused because its volume moves for the attach
 * to another machine.
 */
export type Relation = 'join' | 'wait' | 'cancel' | 'refuse' | 'taken';

export function relate(underWay: Asked & Pick<OperationRow, 'undoing'>, asked: Asked): Relation {
  const isSameMachine = underWay.machine_id !== null && underWay.machine_id === asked.machine_id;
  if (isSameMachine && asked.kind === 'destroy') return underWay.kind === 'destroy' ? 'join' : 'cancel';
  if (isSameMachine && underWay.kind === 'destroy') return 'refuse';
  // A volume that is being moved is deleted where it is; the unfinished copy is removed from the other host.
  if (underWay.kind === 'move' && asked.kind === 'delete_volume') return 'cancel';
  if (asked.kind === 'attach' && asked.machine_id !== null && isForOther(underWay, asked.machine_id)) return 'taken';
  return isSame(underWay, asked) && !underWay.undoing ? 'join' : 'wait';
}

/**
 * Returns true for the move of a volume that will be attached to another machine. If attaches to machines on several
 * hosts waited for each other's moves, the volume could be moved away again before it is attached.
 */
export const isForOther = ({ kind, args, undoing }: Moving, machineId: string): boolean =>
  kind === 'move' && !undoing && args.for_machine_id !== undefined && args.for_machine_id !== machineId;
type Moving = Pick<OperationRow, 'kind' | 'args' | 'undoing'>;

/**
 * Returns true if both operations would have the same result. This is never true of two requests for a snapshot,
 * because each creates its own snapshot; so the second request waits.
 */
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
