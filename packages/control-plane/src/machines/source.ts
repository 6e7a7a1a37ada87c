// The source of a new machine's root disk, when that is not an image: a snapshot or a kept root disk (a root volume).
// The source determines the host and the stack, and the default sizes of the machine.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import { MACHINE_BOUNDS, MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import type { Tx } from '../db/database.ts';
import type { SnapshotRow, VolumeRow } from '../db/tables.ts';
import { findSnapshot } from '../snapshots/store.ts';
import { readBootVolumes } from '../volumes/boot.ts';
import { volumeNotFound } from '../volumes/store.ts';

/** A snapshot or a root volume from which an account can create a machine. */
export type DiskSource =
  | { kind: 'snapshot'; id: string; hostId: string; stack: string; sizeGb: number; snapshot: SnapshotRow }
  | { kind: 'volume'; id: string; hostId: string; stack: string; sizeGb: number };

/** A valid create request. Absent fields get their values later, from the source or the defaults. */
export type AskedCreate = Omit<MachineCreate, 'volumes'> &
  Required<Pick<MachineCreate, 'name' | 'metadata' | 'env'>> & { volumes: MachineVolume[] };

/** A create request in which every field has a value. */
export type CreateRequest = Required<Omit<MachineCreate, 'snapshot_id' | 'root_volume_id' | 'volumes'>> & {
  source: DiskSource | undefined;
  volumes: MachineVolume[];
};

/**
 * Checks the sizes of `metadata` and `env`, and the paths of `volumes`, which the JSON schema cannot express. Throws
 * `validation_error`.
 */
export function readCreate(body: MachineCreate): AskedCreate {
  const { name = '', metadata = {}, env = {}, volumes = [] } = body;
  checkMetadata(metadata);
  checkBytes('env', env, MACHINE_BOUNDS.envBytes);
  return { ...body, name, metadata, env, volumes: readBootVolumes(volumes) };
}

/**
 * Returns the normalised request whose hash is stored with an idempotency key. Two requests that mean the same become
 * equal: defaults are filled in (unless the machine has a source, which sets other defaults), and ids are in lower
 * case.
 */
export function identityOf({ volumes, ...asked }: AskedCreate): MachineCreate {
  const { snapshot_id, root_volume_id } = asked;
  // Without volumes, a request has the same hash as in older versions, which knew no volumes.
  const attached = volumes.length === 0 ? {} : { volumes };
  if (snapshot_id === undefined && root_volume_id === undefined) return { ...withDefaults(asked), ...attached };
  return {
    ...asked,
    ...attached,
    ...(snapshot_id === undefined ? {} : { snapshot_id: snapshot_id.toLowerCase() }),
    ...(root_volume_id === undefined ? {} : { root_volume_id: root_volume_id.toLowerCase() }),
  };
}

/** Throws `validation_error` for metadata that is too large. */
export const checkMetadata = (metadata: Record<string, unknown>): void =>
  checkBytes('metadata', metadata, MACHINE_BOUNDS.metadataBytes);

function checkBytes(field: string, value: object, most: number): void {
  if (Buffer.byteLength(JSON.stringify(value)) <= most) return;
  throw new ServiceError('validation_error', `${field} must be at most ${most} bytes as JSON.`);
}

/**
 * Returns the source of the new machine's disk, or undefined if that is an image. `volume` is the locked row of the
 * requested root volume, if any. Throws `not_found` when the source does not exist or belongs to another account, and
 * `conflict` when a machine cannot boot from it now.
 */
export async function findSource(
  tx: Tx,
  accountId: string,
  asked: AskedCreate,
  volume: VolumeRow | undefined,
): Promise<DiskSource | undefined> {
  if (asked.snapshot_id !== undefined) return sourceOfSnapshot(await findSnapshot(tx, accountId, asked.snapshot_id));
  if (asked.root_volume_id !== undefined) return sourceOfVolume(accountId, volume);
  return undefined;
}

function sourceOfSnapshot(snapshot: SnapshotRow): DiskSource {
  const { id, host_id: hostId, stack, size_gb: sizeGb, state, error } = snapshot;
  if (state !== 'ready') throw new ServiceError('conflict', `The snapshot is in error: ${error ?? 'it is damaged.'}`);
  return { kind: 'snapshot', id, hostId, stack, sizeGb, snapshot };
}

/**
 * A volume in state `taken` (another machine is being created from it) is refused with `conflict` and not with
 * `not_found`: if that create fails, the volume becomes available again.
 */
function sourceOfVolume(accountId: string, volume: VolumeRow | undefined): DiskSource {
  const isAbsent = volume?.account_id !== accountId || volume.state === 'deleting' || volume.state === 'creating';
  if (!volume || isAbsent) throw volumeNotFound();
  const { kind, state, error, stack, host_id: hostId, size_gb: sizeGb } = volume;
  if (kind !== 'root' || stack === null) {
    throw new ServiceError('conflict', 'The volume is a data volume: a machine boots from a kept root disk only.');
  }
  if (state === 'error') throw new ServiceError('conflict', `The volume is in error: ${error ?? 'it is damaged.'}`);
  if (state !== 'available') {
    throw new ServiceError('conflict', 'The volume is in use: another machine is being made from it.');
  }
  return { kind: 'volume', id: volume.id, hostId, stack, sizeGb };
}

/** Fills in all absent fields. Throws `validation_error` for a value that contradicts the source. */
export function completeRequest(asked: AskedCreate, source: DiskSource | undefined): CreateRequest {
  const { volumes } = asked;
  if (!source) return { ...withDefaults(asked), source, volumes };
  checkFitsSource(asked, source);
  const { rootfs_size_gb = defaultSizeGb(source) } = asked;
  const ofSource = { ...sizeOfMemory(asked, source), rootfs_size_gb, stack: source.stack };
  return { ...withDefaults({ ...asked, ...ofSource }), source, volumes };
}

/** Fills in the defaults that are the same for every machine. */
const withDefaults = ({
  name,
  metadata,
  env,
  ...asked
}: Omit<AskedCreate, 'volumes'>): Omit<CreateRequest, 'source' | 'volumes'> => ({
  name,
  vcpus: asked.vcpus ?? MACHINE_DEFAULTS.vcpus,
  memory_mb: asked.memory_mb ?? MACHINE_DEFAULTS.memory_mb,
  rootfs_size_gb: asked.rootfs_size_gb ?? MACHINE_DEFAULTS.rootfs_size_gb,
  stack: asked.stack ?? MACHINE_DEFAULTS.stack,
  metadata,
  env,
  expires_in_sec: asked.expires_in_sec ?? null,
  on_expiry: asked.on_expiry ?? 'destroy',
});

const defaultSizeGb = ({ kind, sizeGb }: DiskSource): number =>
  kind === 'volume' ? sizeGb : Math.max(MACHINE_DEFAULTS.rootfs_size_gb, sizeGb);

/**
 * Returns the vCPUs and the memory of a memory snapshot, since saved memory can only be resumed in a machine of the
 * same size. Throws `validation_error` if the request asks for another size.
 */
function sizeOfMemory(asked: AskedCreate, source: DiskSource): Pick<MachineCreate, 'vcpus' | 'memory_mb'> {
  if (source.kind !== 'snapshot' || source.snapshot.kind !== 'memory') return {};
  const { vcpus, memory_mb } = source.snapshot;
  checkIsOfSnapshot('vcpus', asked.vcpus, vcpus);
  checkIsOfSnapshot('memory_mb', asked.memory_mb, memory_mb);
  return { vcpus, memory_mb };
}

function checkIsOfSnapshot(field: string, value: number | undefined, ofSnapshot: number): void {
  if (value === undefined || value === ofSnapshot) return;
  throw new ServiceError('validation_error', `${field} must be ${ofSnapshot}, as in the memory snapshot.`);
}

function checkFitsSource({ stack, rootfs_size_gb }: AskedCreate, source: DiskSource): void {
  if (stack !== undefined && stack !== source.stack) {
    throw new ServiceError('validation_error', `stack must be ${source.stack}, as in the ${source.kind}.`);
  }
  if (rootfs_size_gb !== undefined && rootfs_size_gb < source.sizeGb) {
    throw new ServiceError(
      'validation_error',
      `rootfs_size_gb must be at least ${source.sizeGb}, the size of the ${source.kind}.`,
    );
  }
}
