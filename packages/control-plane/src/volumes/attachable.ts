// Checks whether a volume can be attached to or detached from a machine. Pure functions. When several reasons forbid
// it, they throw the first one.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { UNMOUNTABLE, VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { checkAction } from '../machines/rules.ts';
import { MustMove } from '../moves/request.ts';

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

/** Throws `conflict` for a volume that cannot be attached to any machine now. */
export function checkFree({ id, kind, state, machine_id, mount_path, error }: VolumeRow): void {
  if (kind === 'root') {
    throw conflict('It is a root disk: make a machine that boots from it, with root_volume_id. It cannot be data.');
  }
  if (machine_id !== null) {
    throw conflict(`The volume ${id} is attached to machine ${machine_id} at ${mount_path}: detach it first.`);
  }
  if (state === 'error') throw conflict(`The volume ${id} is in error: ${error ?? 'no reason is known'}`);
}

/**
 * Returns `noop` when the volume is already attached to this machine at this path. Throws `conflict`, and `MustMove` when
 * the volume is on another host.
 */
export function checkAttach({ volume, machine, mountPath, others }: AttachRequest): 'allowed' | 'noop' {
  const isThere = volume.machine_id === machine.id && volume.mount_path === mountPath;
  if (isThere && volume.kind === 'data' && volume.state === 'attached') return 'noop';
  checkFree(volume);
  checkAction(machine.state, 'attach');
  if (others.length >= VOLUME_BOUNDS.perMachine) {
    throw conflict(`The machine has ${VOLUME_BOUNDS.perMachine} data volumes, and no machine can have more.`);
  }
  if (others.some((other) => other.mount_path === mountPath)) {
    throw conflict(`Another volume of the machine is mounted at ${mountPath}.`);
  }
  // Last, so that nothing moves for an attach that is refused anyway.
  if (volume.host_id !== machine.host_id) {
    throw new MustMove([volume], machine.host_id, machine.id);
  }
  return 'allowed';
}

/** Throws `conflict` when the state of the volume's machine does not allow a detach. */
export function checkDetach(machine: MachineRow): void {
  checkAction(machine.state, 'detach');
}

const conflict = (detail: string): ServiceError => new ServiceError('conflict', detail);
