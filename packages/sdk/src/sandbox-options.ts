// The options of `Sandbox` in camelCase, and functions that turn them into requests of the API.
import type { ExecCreate } from '@sandbar/contract/exec.ts';
import type { MachineCreate, MachineUpdate } from '@sandbar/contract/machine.ts';
import type { ExpiryAction } from '@sandbar/contract/machine-states.ts';
import { toBase64, toBytes } from './bytes.ts';
import type { CallOptions } from './call-options.ts';

export type SandboxUpdate = {
  name?: string | undefined;
  /** Any JSON values by key: at most 64 keys and 16 KiB. Replaces all metadata. */
  metadata?: Record<string, unknown> | undefined;
  /** Seconds from now until `onExpiry` happens (10 to 31,536,000); null: never. */
  expiresInSec?: number | null | undefined;
  /** What the service does with the machine at its expiry. Default: `destroy`. */
  onExpiry?: ExpiryAction | undefined;
};

export type MachineOptions = SandboxUpdate & {
  vcpus?: number | undefined;
  /** MiB. */
  memoryMb?: number | undefined;
  /** GiB. */
  rootfsSizeGb?: number | undefined;
  /** The image, see `client.images.list()`. */
  stack?: string | undefined;
  /** Environment variables of all commands and terminals in the machine. */
  env?: Record<string, string> | undefined;
  /** Create the machine from this snapshot. */
  snapshotId?: string | undefined;
  /** Boot from this volume, the root disk of a machine that was destroyed with `preserveStorage`. */
  rootVolumeId?: string | undefined;
  /**
   * Data volumes to attach before the first boot. They must all be on the same host. Default of `mountPath`:
   * `/mnt/<volume id>`.
   */
  volumes?: readonly { volumeId: string; mountPath?: string | undefined }[] | undefined;
};

export type ExecOptions = CallOptions & {
  /** An absolute path. Default: the image's working directory, else the user's home. */
  cwd?: string | undefined;
  /** Added to the machine's environment. */
  env?: Record<string, string> | undefined;
  /** A name or uid, with `:group` if wanted. Default: the image's user, else root. */
  user?: string | undefined;
  /** A label of the job. */
  name?: string | undefined;
  /** The standard input, up to 512 KiB. Text is sent as UTF-8. */
  stdin?: string | Uint8Array | undefined;
  /** How long the command may run in the machine, seconds (1 to 86,400). Default: 3600. */
  timeoutSec?: number | undefined;
  /** Put stderr into stdout, in the order in which both were written. */
  mergeOutput?: boolean | undefined;
};

export function machineUpdateOf({ name, metadata, expiresInSec, onExpiry }: SandboxUpdate): MachineUpdate {
  return onlyGiven({ name, metadata, expires_in_sec: expiresInSec, on_expiry: onExpiry });
}

export function machineCreateOf(options: MachineOptions): MachineCreate {
  const { vcpus, memoryMb, rootfsSizeGb, stack, env, snapshotId, rootVolumeId, volumes } = options;
  const attached = volumes?.map(({ volumeId, mountPath }) => ({
    volume_id: volumeId,
    ...onlyGiven({ mount_path: mountPath }),
  }));
  return {
    ...machineUpdateOf(options),
    ...onlyGiven({ vcpus, memory_mb: memoryMb, rootfs_size_gb: rootfsSizeGb, stack, env }),
    ...onlyGiven({ snapshot_id: snapshotId, root_volume_id: rootVolumeId, volumes: attached }),
  };
}

/** Text is run by `/bin/sh -c`. An array is a program with its arguments, and is run without a shell. */
export function execCreateOf(command: string | readonly string[], options: ExecOptions): ExecCreate {
  const { cwd, env, user, name, stdin, timeoutSec, mergeOutput } = options;
  return {
    ...(typeof command === 'string' ? { command } : { argv: [...command] }),
    ...onlyGiven({ cwd, env, user, name, timeout_sec: timeoutSec, merge_output: mergeOutput }),
    ...(stdin === undefined ? {} : { stdin: toBase64(toBytes(stdin)) }),
  };
}

/** Leaves out undefined values, so that the service uses its defaults. */
function onlyGiven<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}
