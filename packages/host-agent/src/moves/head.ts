// What the stream of a volume or a machine says about itself before its files. The agent checks it: it comes through the control
// plane, which is not root.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import { MachineSpec } from '@sandbar/contract/host-api.ts';
import { SnapshotManifest } from '@sandbar/contract/host-blobs.ts';
import { type Static, type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';

/** Grows when an older agent could not take in the stream any more. */
const VERSION = 1;
/** The version for a machine with snapshots. An older agent refuses it, so that the snapshots are not lost. */
const VERSION_WITH_SNAPSHOTS = 2;
/** The version for a machine with a system id. An older agent refuses it, so that the machine keeps its SSH host keys. */
const VERSION_WITH_SYSTEM_ID = 3;
/** The most bytes of one file: twice the largest disk. */
const FILE_BYTES_MAX = 2 * 2 ** 40;

const Bytes = Type.Integer({ minimum: 0, maximum: FILE_BYTES_MAX });
const MovedImage = Type.Object({ stack: Type.String(), digest: Type.String(), content: Type.String() });
/** A file below a disk. Its id is its name on every host. */
const MovedLayer = Type.Object({ id: Uuid(), bytes: Bytes });
export type MovedLayer = Static<typeof MovedLayer>;

const DataHead = Type.Object({
  version: Type.Literal(VERSION),
  kind: Type.Literal('data'),
  size_gb: Type.Integer({ minimum: 1 }),
  formatted: Type.Boolean(),
  disk_bytes: Bytes,
});
const RootHead = Type.Object({
  version: Type.Literal(VERSION),
  kind: Type.Literal('root'),
  size_gb: Type.Integer({ minimum: 1 }),
  machine_id: Uuid(),
  image: MovedImage,
  layers: Type.Array(MovedLayer),
  disk_bytes: Bytes,
});
export const VolumeHead = Type.Union([DataHead, RootHead]);
export type VolumeHead = Static<typeof VolumeHead>;
export type RootHead = Static<typeof RootHead>;

/** A file of the output of ended jobs: its path below the folder of the jobs. */
const MovedOutput = Type.Object({
  path: Type.String({ pattern: '^[0-9a-f-]{36}/(job\\.json|stdout|stderr)$' }),
  bytes: Bytes,
});
/** A snapshot of a machine. `state_bytes`: size of the saved state of its devices; null without memory. */
const MovedSnapshot = Type.Object({
  id: Uuid(),
  manifest: SnapshotManifest,
  state_bytes: Type.Union([Bytes, Type.Null()]),
});
export type MovedSnapshot = Static<typeof MovedSnapshot>;
export const MachineHead = Type.Object({
  version: Type.Union([
    Type.Literal(VERSION),
    Type.Literal(VERSION_WITH_SNAPSHOTS),
    Type.Literal(VERSION_WITH_SYSTEM_ID),
  ]),
  kind: Type.Literal('machine'),
  spec: MachineSpec,
  system_id: Type.Optional(Uuid("The UUID of the guest's /etc/machine-id. Left out: the id of the machine.")),
  image: MovedImage,
  layers: Type.Array(MovedLayer),
  has_disk: Type.Boolean({ description: 'Whether the machine has ever run from its disk.' }),
  disk_bytes: Type.Union([Bytes, Type.Null()], { description: 'Null: there is no disk yet.' }),
  restored_generation: Type.Integer(),
  boot_generation: Type.Integer(),
  reason: Type.Union([Type.String(), Type.Null()]),
  volumes: Type.Array(Type.Object({ volumeId: Uuid(), slot: Type.Integer({ minimum: 0 }), path: Type.String() })),
  output: Type.Array(MovedOutput),
  snapshots: Type.Optional(Type.Array(MovedSnapshot)),
  snapshot_layers: Type.Optional(
    Type.Array(MovedLayer, { description: 'The layers of the snapshots that the machine itself does not have.' }),
  ),
});
export type MachineHead = Static<typeof MachineHead>;
export { VERSION, VERSION_WITH_SNAPSHOTS, VERSION_WITH_SYSTEM_ID };

/** Returns the head. Throws `conflict` when an agent of another version has sent it. */
export function checkHead<T extends TSchema>(schema: T, head: unknown): Static<T> {
  if (Value.Check(schema, head)) return head;
  throw new ServiceError(
    'conflict',
    'the hosts have different versions, and this one cannot read what the other sends',
  );
}
