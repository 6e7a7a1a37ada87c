// Volumes: disks that exist independently of machines. A user creates a data volume; a root volume is the root disk of
// a machine that was deleted with preserve_storage.
import { type Static, Type } from 'typebox';
import { NextCursor, Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';
import { MOUNT_PATH_PATTERN } from './patterns.ts';
import { UNMOUNTABLE, VOLUME_BOUNDS, VOLUME_KINDS, VOLUME_STATES } from './volume-states.ts';

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

export const VolumeCreate = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: VOLUME_BOUNDS.nameLength, default: '' })),
    size_gb: Type.Integer({
      minimum: VOLUME_BOUNDS.sizeGbMin,
      maximum: VOLUME_BOUNDS.sizeGbMax,
      description: 'GiB; what is never written takes no room on the host.',
    }),
  },
  { title: 'VolumeCreate', additionalProperties: false },
);
export type VolumeCreate = Static<typeof VolumeCreate>;

export const MountPath = Type.String({
  maxLength: VOLUME_BOUNDS.mountPathLength,
  pattern: MOUNT_PATH_PATTERN,
  description: `Default: /mnt/<volume id>. Absolute, and not at or below ${UNMOUNTABLE.join(', ')}. Made when it is not there.`,
});

export const VolumeAttach = Type.Object(
  {
    machine_id: Uuid('A machine on the host of the volume; running or stopped.'),
    mount_path: Type.Optional(MountPath),
  },
  { title: 'VolumeAttach', additionalProperties: false },
);
export type VolumeAttach = Static<typeof VolumeAttach>;

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
