// Snapshots: the root disk of a machine as it was at one moment and, if asked for, its memory and the state of its
// devices. A snapshot never changes.
import { type Static, Type } from 'typebox';
import { NextCursor, Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';

export const SNAPSHOT_KINDS = ['disk', 'memory'] as const;
export type SnapshotKind = (typeof SNAPSHOT_KINDS)[number];

export const SNAPSHOT_STATES = ['ready', 'error'] as const;
export type SnapshotState = (typeof SNAPSHOT_STATES)[number];

export const SNAPSHOT_NAME_LENGTH = 255;

export const Snapshot = Type.Object(
  {
    id: Uuid(),
    account_id: Uuid(),
    machine_id: Uuid('The machine it was taken of.'),
    name: Type.String({ description: 'A label; not unique.' }),
    kind: OneOf(SNAPSHOT_KINDS, { description: 'disk: the root disk. memory: the processes, too, as they ran.' }),
    size_gb: Type.Integer({ description: 'Of the root disk, GiB.' }),
    stored_bytes: Type.Integer({ description: 'What it keeps on its host and no earlier snapshot does.' }),
    state: OneOf(SNAPSHOT_STATES),
    error: Nullable(Type.String({ description: 'Why the state is error.' })),
    created_at: Timestamp(),
  },
  { title: 'Snapshot' },
);
export type Snapshot = Static<typeof Snapshot>;

export const SnapshotCreate = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: SNAPSHOT_NAME_LENGTH, default: '' })),
    memory: Type.Optional(
      Type.Boolean({ default: false, description: 'Keep memory and devices as well; of a running machine only.' }),
    ),
  },
  { title: 'SnapshotCreate', additionalProperties: false },
);
export type SnapshotCreate = Static<typeof SnapshotCreate>;

export const SnapshotParams = Type.Object({ id: Uuid('The snapshot.') });

export const SnapshotListQuery = Type.Object(
  {
    kind: Type.Optional(OneOf(SNAPSHOT_KINDS)),
    state: Type.Optional(OneOf(SNAPSHOT_STATES)),
    ...PagingQuery,
  },
  { additionalProperties: false },
);
export type SnapshotListQuery = Static<typeof SnapshotListQuery>;

export const SnapshotList = Type.Object(
  { snapshots: Type.Array(Snapshot), next_cursor: NextCursor },
  { title: 'SnapshotList' },
);
