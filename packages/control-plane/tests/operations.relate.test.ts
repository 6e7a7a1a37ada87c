// Tests the rule for a request that meets an unfinished operation, from the table of all pairs.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { OperationRow } from '../src/db/tables.ts';
import { type Asked, type Relation, relate } from '../src/operations/relate.ts';
import { COLUMNS, type Column, type Kind, MOVES, type MoveKind, TABLE } from './support/pairs-table.ts';

/** Builds an operation with only the columns that `relate` reads. */
const asked = (kind: OperationRow['kind'], subject: Partial<Asked> = {}): Asked => ({
  ...{ kind, machine_id: null, volume_id: null, snapshot_id: null, args: {} },
  ...subject,
});
const MOUNT = { args: { mount_path: '/mnt/data' } };
const UNDER_WAY: Record<Kind | MoveKind, Asked> = {
  create: asked('create', { machine_id: 'm' }),
  start: asked('start', { machine_id: 'm' }),
  stop: asked('stop', { machine_id: 'm' }),
  destroy: asked('destroy', { machine_id: 'm', args: { keep_volume_id: 'kept' } }),
  restore: asked('restore', { machine_id: 'm', snapshot_id: 's' }),
  snapshot: asked('snapshot', { machine_id: 'm', snapshot_id: 'new' }),
  attach: asked('attach', { machine_id: 'm', volume_id: 'v', ...MOUNT }),
  detach: asked('detach', { machine_id: 'm', volume_id: 'v' }),
  delete_volume: asked('delete_volume', { volume_id: 'v' }),
  delete_snapshot: asked('delete_snapshot', { snapshot_id: 's' }),
  create_volume: asked('create_volume', { volume_id: 'v' }),
  'move of the machine': asked('move', { machine_id: 'm' }),
  'move of the volume': asked('move', { volume_id: 'v' }),
  remove_copy: asked('remove_copy'),
};
const REQUESTS: Partial<Record<Column, Asked>> = {
  start: asked('start', { machine_id: 'm' }),
  stop: asked('stop', { machine_id: 'm' }),
  destroy: asked('destroy', { machine_id: 'm' }),
  'restore the same': asked('restore', { machine_id: 'm', snapshot_id: 's' }),
  'restore another': asked('restore', { machine_id: 'm', snapshot_id: 's2' }),
  snapshot: asked('snapshot', { machine_id: 'm', snapshot_id: 'newer' }),
  'attach the same': asked('attach', { machine_id: 'm', volume_id: 'v', ...MOUNT }),
  'attach another': asked('attach', { machine_id: 'm', volume_id: 'v2', ...MOUNT }),
  detach: asked('detach', { machine_id: 'm', volume_id: 'v' }),
  'delete the volume': asked('delete_volume', { volume_id: 'v' }),
  'delete the snapshot': asked('delete_snapshot', { snapshot_id: 's' }),
};
const TABLES = { ...TABLE, ...MOVES };
const ALL_KINDS = Object.keys(TABLES) as (Kind | MoveKind)[];

describe('the rule of', () => {
  for (const kind of ALL_KINDS) {
    for (const column of COLUMNS) {
      const request = REQUESTS[column];
      const relation = request && relationOf(kind, column, request);
      if (!request || !relation) continue;
      it(`${kind} under way, ${column} asked for: ${relation}`, () => {
        assert.equal(relate({ ...UNDER_WAY[kind], undoing: false }, request), relation);
      });
      it(`${kind} being taken back, ${column} asked for: ${relation === 'join' && kind !== 'destroy' ? 'wait' : relation}`, () => {
        const expected = relation === 'join' && kind !== 'destroy' ? 'wait' : relation;
        assert.equal(relate({ ...UNDER_WAY[kind], undoing: true }, request), expected);
      });
    }
  }

  it('an attach of the same volume to another path: wait', () => {
    const elsewhere = asked('attach', { machine_id: 'm', volume_id: 'v', args: { mount_path: '/mnt/elsewhere' } });
    assert.equal(relate({ ...UNDER_WAY.attach, undoing: false }, elsewhere), 'wait');
  });

  it('an attach of the same volume to another machine: wait', () => {
    const elsewhere = asked('attach', { machine_id: 'm2', volume_id: 'v', ...MOUNT });
    assert.equal(relate({ ...UNDER_WAY.attach, undoing: false }, elsewhere), 'wait');
  });

  it('a delete of a machine ends what is under way for it, and nothing of another machine', () => {
    const other = asked('destroy', { machine_id: 'm2' });
    assert.equal(relate({ ...UNDER_WAY.start, undoing: false }, other), 'wait');
  });
});

/**
 * Returns the relation that `relate` must report for this table cell, or undefined if the two share no machine, volume
 * or snapshot.
 */
function relationOf(kind: Kind | MoveKind, column: Column, request: Asked): Relation | undefined {
  const underWay = UNDER_WAY[kind];
  const shares = (['machine_id', 'volume_id', 'snapshot_id'] as const).some(
    (name) => underWay[name] !== null && underWay[name] === request[name],
  );
  if (!shares) return undefined;
  const cell = TABLES[kind][column];
  if (cell === 'joined') return 'join';
  if (cell === 'cancels') return 'cancel';
  if (cell.startsWith('waits')) return 'wait';
  const machineIsLeaving = kind === 'destroy' && cell === '409' && request.machine_id !== null;
  return machineIsLeaving ? 'refuse' : undefined;
}
