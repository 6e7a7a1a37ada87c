// Volumes: disks with a life of their own. A data volume is made as one; a root volume is the disk of a machine that was
// deleted with preserve_storage.
import { type Static, Type } from 'typebox';
import { NextCursor, Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';

export const VOLUME_KINDS = ['data', 'root'] as const;
export type VolumeKind = (typeof VOLUME_KINDS)[number];

export const VOLUME_STATES = ['available', 'attached', 'error'] as const;
export type VolumeState = (typeof VOLUME_STATES)[number];

export const VOLUME_ACTIONS = ['delete'] as const;
export type VolumeAction = (typeof VOLUME_ACTIONS)[number];

/** What may be asked of a volume in each state. Everything not listed is a 409. */
export const VOLUME_STATE_TABLE: Record<VolumeState, Partial<Record<VolumeAction, 'allowed'>>> = {
  available: { delete: 'allowed' },
  attached: {},
  error: { delete: 'allowed' },
};

export const Volume = Type.Object(
  {
    id: Uuid(),
    account_id: Uuid(),
    name: Type.String({ description: 'A label; not unique.' }),
    kind: OneOf(VOLUME_KINDS, { description: 'root: the kept root disk of a deleted machine.' }),
    size_gb: Type.Integer({ description: 'GiB.' }),
    state: OneOf(VOLUME_STATES),
    machine_id: Nullable(Uuid('The machine it is attached to.')),
    mount_path: Nullable(Type.String({ description: 'Where that machine mounts it.' })),
    error: Nullable(Type.String({ description: 'Why the state is error.' })),
    created_at: Timestamp(),
  },
  { title: 'Volume' },
);
export type Volume = Static<typeof Volume>;

export const VolumeParams = Type.Object({ id: Uuid('The volume.') });

export const VolumeListQuery = Type.Object(
  {
    kind: Type.Optional(OneOf(VOLUME_KINDS)),
    state: Type.Optional(OneOf(VOLUME_STATES)),
    ...PagingQuery,
  },
  { additionalProperties: false },
);
export type VolumeListQuery = Static<typeof VolumeListQuery>;

export const VolumeList = Type.Object(
  { volumes: Type.Array(Volume), next_cursor: NextCursor },
  { title: 'VolumeList' },
);
