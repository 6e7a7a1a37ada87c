// The table of all pairs of an unfinished operation and a request that arrives meanwhile, for the tests of the rule
// (operations.relate.test.ts) and of the service (operations.pairs*.behaviour.test.ts).
import type { OperationRow } from '../../src/db/tables.ts';

/**
 * What happens to the request. `joined`: it gets the operation's result. `waits N`: it starts after the operation has
 * ended and is answered N. `waits, noop`: it waits, then finds that nothing is left to do. `cancels`: it ends the
 * operation, and the operation's own request gets an error. `404`, `409`: it is refused at once. `beside N`: it is
 * answered N while the operation goes on. `- …`: the pair cannot occur, for the given reason.
 */
export type Cell =
  | 'joined'
  | `waits ${number}`
  | 'waits, noop'
  | 'cancels'
  | '404'
  | '409'
  | `beside ${number}`
  | `- ${string}`;

export const COLUMNS = [
  ...(['start', 'stop', 'destroy', 'restore the same', 'restore another', 'snapshot', 'attach the same'] as const),
  ...(['attach another', 'detach', 'delete the volume', 'delete the snapshot', 'exec', 'PATCH', 'GET'] as const),
];
export type Column = (typeof COLUMNS)[number];

const NEVER_RAN = '- a machine that never ran has no snapshot';

/**
 * One row for each operation under way, one column for each request. "The same" volume or snapshot is the one that the
 * operation works on. If the operation has none, the request uses a snapshot of the machine, or a volume attached to it
 * (a free volume when the operation is a create).
 */
export const TABLE: Record<Exclude<OperationRow['kind'], 'expire' | 'move' | 'remove_copy'>, Record<Column, Cell>> = {
  create: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': NEVER_RAN,
    'restore another': NEVER_RAN,
    snapshot: 'waits 201',
    'attach the same': 'waits 200',
    'attach another': 'waits 200',
    detach: '409',
    'delete the volume': 'beside 204',
    'delete the snapshot': NEVER_RAN,
    exec: 'waits 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  start: {
    start: 'joined',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'beside 204',
    exec: 'waits 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  stop: {
    start: 'waits 200',
    stop: 'joined',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'beside 204',
    exec: '409',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  destroy: {
    start: '409',
    stop: '409',
    destroy: 'joined',
    'restore the same': '409',
    'restore another': '409',
    snapshot: '409',
    'attach the same': '409',
    'attach another': '409',
    detach: '409',
    'delete the volume': '409',
    'delete the snapshot': 'beside 204',
    exec: '409',
    PATCH: '409',
    GET: 'beside 200',
  },
  restore: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'joined',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'waits 204',
    exec: 'waits 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  snapshot: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': '404',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': '404',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  attach: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'joined',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': 'waits 409',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  detach: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits 200',
    'attach another': 'waits 200',
    detach: 'joined',
    'delete the volume': 'waits 204',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  delete_volume: {
    start: 'beside 200',
    stop: 'beside 200',
    destroy: 'beside 200',
    'restore the same': 'beside 200',
    'restore another': 'beside 200',
    snapshot: 'beside 201',
    'attach the same': '404',
    'attach another': 'beside 200',
    detach: '404',
    'delete the volume': 'joined',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  delete_snapshot: {
    start: 'beside 200',
    stop: 'beside 200',
    destroy: 'beside 200',
    'restore the same': '404',
    'restore another': 'beside 200',
    snapshot: 'beside 201',
    'attach the same': 'beside 200',
    'attach another': 'beside 200',
    detach: 'beside 200',
    'delete the volume': '409',
    'delete the snapshot': 'joined',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  create_volume: {
    start: 'beside 200',
    stop: 'beside 200',
    destroy: 'beside 200',
    'restore the same': 'beside 200',
    'restore another': 'beside 200',
    snapshot: 'beside 201',
    'attach the same': '404',
    'attach another': 'beside 200',
    detach: '404',
    'delete the volume': '404',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
};
export type Kind = keyof typeof TABLE;
export const KINDS = Object.keys(TABLE) as Kind[];

/**
 * What moves: a stopped machine with a volume, or a detached volume. Then the copies that a move has left are removed.
 */
export type MoveKind = 'move of the machine' | 'move of the volume' | 'remove_copy';

const OTHERS = '- the request has nothing to do with what moves';

/**
 * The same for operations that move something to another host. The machine that moves is stopped and has "the same"
 * volume. When a volume moves, the machine runs on the host to which the volume goes.
 */
export const MOVES: Record<MoveKind, Record<Column, Cell>> = {
  'move of the machine': {
    start: 'waits 200',
    stop: 'waits, noop',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'waits 204',
    exec: '409',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  'move of the volume': {
    start: OTHERS,
    stop: OTHERS,
    destroy: 'beside 200',
    'restore the same': OTHERS,
    'restore another': OTHERS,
    snapshot: OTHERS,
    'attach the same': 'waits 200',
    'attach another': 'beside 200',
    detach: '409',
    'delete the volume': 'cancels',
    'delete the snapshot': OTHERS,
    exec: OTHERS,
    PATCH: OTHERS,
    GET: OTHERS,
  },
  remove_copy: {
    start: 'beside 200',
    stop: OTHERS,
    destroy: 'beside 200',
    'restore the same': 'beside 200',
    'restore another': OTHERS,
    snapshot: 'beside 201',
    'attach the same': OTHERS,
    'attach another': 'beside 200',
    detach: 'beside 200',
    'delete the volume': OTHERS,
    'delete the snapshot': OTHERS,
    exec: OTHERS,
    PATCH: OTHERS,
    GET: OTHERS,
  },
};
export const MOVE_KINDS = Object.keys(MOVES) as MoveKind[];
