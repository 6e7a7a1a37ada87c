// The machine: its public fields, the fields of a create request, and the table of actions allowed in each state.
import { type Static, Type } from 'typebox';
import { Environment, NextCursor, Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';
import {
  EXPIRY_ACTIONS,
  ISOLATIONS,
  MACHINE_BOUNDS,
  MACHINE_DEFAULTS,
  MACHINE_STATES,
  OPERATION_KINDS,
} from './machine-states.ts';
import { MountPath } from './volume.ts';
import { VOLUME_BOUNDS } from './volume-states.ts';

/** Any JSON values by key; at most 64 keys, and 16 KiB in all when written as JSON. */
export const Metadata = Type.Record(Type.String(), Type.Unknown(), {
  maxProperties: MACHINE_BOUNDS.metadataKeys,
  description: 'Arbitrary key/value pairs: at most 64 keys, 16 KiB in all.',
});

export const MachineOperation = Type.Object(
  {
    kind: OneOf(OPERATION_KINDS),
    since: Timestamp('When it was asked for.'),
    attempts: Type.Integer({ description: 'How often it was begun; above 1 after a failure or a restart.' }),
    last_error: Nullable(Type.String({ description: 'Why the last attempt failed.' })),
  },
  { title: 'MachineOperation', description: 'What is under way; null when nothing is.' },
);
export type MachineOperation = Static<typeof MachineOperation>;

const ExpiresInSec = Type.Union(
  [Type.Integer({ minimum: MACHINE_BOUNDS.expirySecMin, maximum: MACHINE_BOUNDS.expirySecMax }), Type.Null()],
  { description: 'Seconds from this request on (10 to 31536000) until on_expiry happens; null: never.' },
);
const OnExpiry = OneOf(EXPIRY_ACTIONS, {
  description: 'What happens when it expires: destroy (the default) or stop. A machine with snapshots is stopped.',
});

export const Machine = Type.Object(
  {
    id: Uuid(),
    account_id: Uuid(),
    name: Type.String({ description: 'A label; not unique.' }),
    state: OneOf(MACHINE_STATES),
    vcpus: Type.Integer(),
    memory_mb: Type.Integer({ description: 'MiB.' }),
    rootfs_size_gb: Type.Integer({ description: 'GiB.' }),
    stack: Type.String({ description: 'The image stack it was made from.' }),
    private_ip: Nullable(
      Type.String({
        format: 'ipv4',
        description:
          'Stable while the machine stays on its host. It gets another one when it moves while it is stopped.',
      }),
    ),
    metadata: Type.Record(Type.String(), Type.Unknown()),
    snapshot_id: Nullable(Uuid('The snapshot it was made from.')),
    root_volume_id: Nullable(
      Uuid('The kept root volume it was made from; of a destroyed machine the one that its disk became.'),
    ),
    isolation: OneOf(ISOLATIONS, { description: 'kvm: hardware virtualisation. emulated: no security boundary.' }),
    error: Nullable(Type.String({ description: 'Why the state is error.' })),
    operation: Nullable(MachineOperation),
    expires_at: Nullable(Timestamp('When on_expiry happens; null: never.')),
    on_expiry: OneOf(EXPIRY_ACTIONS, {
      description: 'What happens at expires_at. A machine with snapshots is stopped in any case.',
    }),
    created_at: Timestamp(),
    started_at: Nullable(Timestamp('When it last began to run.')),
    stopped_at: Nullable(Timestamp('When it last stopped.')),
    destroyed_at: Nullable(Timestamp()),
  },
  { title: 'Machine' },
);
export type Machine = Static<typeof Machine>;

const BootVolume = Type.Object(
  {
    volume_id: Uuid('An available data volume.'),
    mount_path: Type.Optional(MountPath),
  },
  { title: 'MachineCreateVolume', additionalProperties: false },
);

export const MachineCreate = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: MACHINE_BOUNDS.nameLength, default: '' })),
    vcpus: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MACHINE_BOUNDS.vcpusMax, default: MACHINE_DEFAULTS.vcpus }),
    ),
    memory_mb: Type.Optional(
      Type.Integer({
        minimum: MACHINE_BOUNDS.memoryMbMin,
        maximum: MACHINE_BOUNDS.memoryMbMax,
        default: MACHINE_DEFAULTS.memory_mb,
        description: 'MiB.',
      }),
    ),
    rootfs_size_gb: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MACHINE_BOUNDS.rootfsGbMax,
        default: MACHINE_DEFAULTS.rootfs_size_gb,
        description: "GiB; at least the image's own size.",
      }),
    ),
    stack: Type.Optional(
      Type.String({ minLength: 1, maxLength: 64, default: MACHINE_DEFAULTS.stack, description: 'See GET /v1/images.' }),
    ),
    metadata: Type.Optional(Metadata),
    env: Type.Optional(
      Environment("The default environment of its jobs, 16 KiB in all. A job's own env wins. It is never shown again."),
    ),
    expires_in_sec: Type.Optional(ExpiresInSec),
    on_expiry: Type.Optional(OnExpiry),
    snapshot_id: Type.Optional(
      Uuid(
        "Boot from this snapshot, on its host, with its stack; one with memory goes on where it was, with the snapshot's vcpus and memory_mb. " +
          "rootfs_size_gb is then 10 or the snapshot's size, whichever is larger, unless a larger one is given.",
      ),
    ),
    root_volume_id: Type.Optional(
      Uuid(
        "Boot from this kept root disk, with its stack: it becomes the machine's. It moves to another host if its own cannot take the machine. rootfs_size_gb is its size unless a larger one is given.",
      ),
    ),
    volumes: Type.Optional(
      Type.Array(BootVolume, {
        maxItems: VOLUME_BOUNDS.perMachine,
        description:
          'Data volumes that are attached before the first boot. They move to the host of the machine first if they are on ' +
          'different hosts, or on one that cannot take the machine.',
      }),
    ),
  },
  // A machine has one root disk, so a request may name a snapshot or a kept root volume, but not both.
  {
    title: 'MachineCreate',
    additionalProperties: false,
    not: { type: 'object', required: ['snapshot_id', 'root_volume_id'] },
  },
);
export type MachineCreate = Static<typeof MachineCreate>;

/** The fields of a machine that can be changed. A field that is left out stays as it is. */
export const MachineUpdate = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: MACHINE_BOUNDS.nameLength })),
    metadata: Type.Optional(Metadata),
    expires_in_sec: Type.Optional(ExpiresInSec),
    on_expiry: Type.Optional(OnExpiry),
  },
  { title: 'MachineUpdate', additionalProperties: false },
);
export type MachineUpdate = Static<typeof MachineUpdate>;

export const MachineParams = Type.Object({ id: Uuid('The machine.') });

export const MachineDestroyQuery = Type.Object(
  {
    preserve_storage: Type.Optional(
      Type.Boolean({ default: false, description: 'Keep the root disk as a detached volume.' }),
    ),
    delete_snapshots: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'Remove its snapshots first; without it a machine that has snapshots is a 409.',
      }),
    ),
  },
  { additionalProperties: false },
);

/** Filters of the list. `metadata.KEY=VALUE` parameters are allowed as well, with any KEY. */
export const MachineListQuery = Type.Object(
  {
    state: Type.Optional(OneOf(MACHINE_STATES, { description: 'Without it destroyed machines are left out.' })),
    name: Type.Optional(Type.String({ maxLength: MACHINE_BOUNDS.nameLength, description: 'Exact match.' })),
    ...PagingQuery,
  },
  { patternProperties: { '^metadata\\.[\\s\\S]': { type: 'string' } }, additionalProperties: false },
);
export type MachineListQuery = Static<typeof MachineListQuery>;

export const MachineList = Type.Object(
  { machines: Type.Array(Machine), next_cursor: NextCursor },
  { title: 'MachineList' },
);
