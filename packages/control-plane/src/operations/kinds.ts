// The table of all kinds of operations: what each asks of a host, what it records, and how it is undone. Requests, the
// reconciler and the audit all use this table, so an operation is done in the same way by each of them.
import type { AnyOperationKind } from '@sandbar/contract/machine-states.ts';
import type { Definition } from './definition.ts';
import { ATTACH } from './kinds/attach.ts';
import { CREATE } from './kinds/create.ts';
import { DESTROY } from './kinds/destroy.ts';
import { DETACH } from './kinds/detach.ts';
import { MOVE } from './kinds/move.ts';
import { REMOVE_COPY } from './kinds/remove-copy.ts';
import { RESTORE } from './kinds/restore.ts';
import { DELETE_SNAPSHOT, SNAPSHOT } from './kinds/snapshot.ts';
import { START } from './kinds/start.ts';
import { STOP } from './kinds/stop.ts';
import { CREATE_VOLUME, DELETE_VOLUME } from './kinds/volume.ts';

/** All kinds except the expiry, which is replaced by a stop or a destroy when it is due (operations/expiry.ts). */
export const OPERATIONS: Record<Exclude<AnyOperationKind, 'expire'>, Definition> = {
  create: CREATE,
  start: START,
  stop: STOP,
  destroy: DESTROY,
  restore: RESTORE,
  snapshot: SNAPSHOT,
  attach: ATTACH,
  detach: DETACH,
  move: MOVE,
  remove_copy: REMOVE_COPY,
  create_volume: CREATE_VOLUME,
  delete_volume: DELETE_VOLUME,
  delete_snapshot: DELETE_SNAPSHOT,
};
