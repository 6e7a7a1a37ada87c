// Checks whether a volume can be attached to or detached from a machine. Pure functions. When several reasons forbid
// it, they throw the first one.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { UNMOUNTABLE, VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { checkAction } from '../machines/rules.ts';

/**
 * Throws `validation_error` if the mount path is at or below a directory that the guest's own system needs, such as
 * /proc.
 */
export function checkMountPath(path: string): void {
  const taken = UNMOUNTABLE.find((folder) => path === folder || path.startsWith(`${folder}/`));
  if (taken === undefined) return;
  throw new ServiceError(
    'validation_error',
    `mount_path must not be at or below ${UNMOUNTABLE.join(', ')}: the machine needs ${taken} as it is.`,
  );
}

export type AttachRequest = {
  volume: VolumeRow;
  machine: MachineRow;
  mountPath: string;
  /** The machine's other data volumes. */
  others: readonly VolumeRow[];
};

/** Returns `noop` when the volume is already attached to this machine at this path. Throws `conflict`. */
export function checkAttach({ volume, machine, mountPath, others }: AttachRequest): 'allowed' | 'noop' {
  if (volume.kind === 'root') {
    throw conflict('It is a root disk: make a machine that boots from it, with root_volume_id. It cannot be data.');
  }
  if (volume.machine_id !== null) {
    const isThere = volume.machine_id === machine.id && volume.mount_path === mountPath;
    if (isThere && volume.state === 'attached') return 'noop';
    throw isAttached(volume);
  }
  if (volume.state === 'error') throw conflict(`The volume is in error: ${volume.error ?? 'no reason is known'}`);
  checkAction(machine.state, 'attach');
  if (volume.host_id !== machine.host_id) {
    throw conflict(
      'The volume is on another host than the machine: both must be on one host, and a volume never moves. ' +
        'Attach it to a machine of its host, or make a volume anew.',
    );
  }
  if (others.length >= VOLUME_BOUNDS.perMachine) {
    throw conflict(`The machine has ${VOLUME_BOUNDS.perMachine} data volumes, and no machine can have more.`);
  }
  if (others.some((other) => other.mount_path === mountPath)) {
    throw conflict(`Another volume of the machine is mounted at ${mountPath}.`);
  }
  return 'allowed';
}

/** Throws `conflict` when the state of the volume's machine does not allow a detach. */
export function checkDetach(machine: MachineRow): void {
  checkAction(machine.state, 'detach');
}

const isAttached = ({ machine_id, mount_path }: VolumeRow): ServiceError =>
  conflict(`The volume is attached to machine ${machine_id} at ${mount_path}: detach it first.`);

const conflict = (detail: string): ServiceError => new ServiceError('conflict', detail);
