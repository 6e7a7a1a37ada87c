// Finds out what QEMU can use on this host. That a device or a system call exists proves nothing: the build of QEMU, the
// kernel's settings or the jail may forbid it. So a QEMU in the jail tries it once, when the agent starts.
import { existsSync, rmSync } from 'node:fs';
import type { KvmChoices } from '../config.ts';
import type { Jail } from '../jail/jail.ts';
import { runCommand } from '../run-command.ts';
import type { QemuHost } from './accelerators.ts';
import { SANDBOX } from './qemu-args.ts';

export const VHOST_DEVICE = '/dev/vhost-net';
/** No VM has this id. */
const TRIAL_ID = '000000000000';
const QUIT = '{"execute":"qmp_capabilities"}{"execute":"quit"}';

export type KvmAbilities = Pick<QemuHost, 'cpuModel' | 'usesDiskThread' | 'usesIoUring' | 'usesVhostNet'>;
type KvmHost = { jail: Jail; qemuPath: string; runDir: string; hasTaps: boolean };

/**
 * Returns what the VMs of a KVM host use. `runDir`: a run directory for the trial, which is removed again. Throws when
 * the operator wants vhost-net and the host does not have it.
 */
export async function kvmAbilities(choices: KvmChoices, host: KvmHost): Promise<KvmAbilities> {
  if (choices.vhostNet && !(host.hasTaps && existsSync(VHOST_DEVICE)))
    throw new Error(
      `SANDBAR_VHOST_NET=1, but this host has no ${VHOST_DEVICE} (modprobe vhost_net) or the agent is not root`,
    );
  return {
    cpuModel: choices.cpuModel,
    usesDiskThread: choices.diskIo === 'auto',
    usesIoUring: choices.diskIo === 'auto' && (await opensWithIoUring(host)),
    usesVhostNet: choices.vhostNet,
  };
}

/**
 * Whether a QEMU in the jail opens a file for io_uring. Debian's `-microvm` build of QEMU cannot. The file is QEMU's own
 * program, which every jail shows.
 */
export async function opensWithIoUring({ jail, qemuPath, runDir }: Omit<KvmHost, 'hasTaps'>): Promise<boolean> {
  const disk = { driver: 'file', 'node-name': 'trial', filename: qemuPath, 'read-only': true, aio: 'io_uring' };
  const args = [
    ['-machine', 'none', '-nodefaults', '-no-user-config', '-display', 'none'],
    ['-blockdev', JSON.stringify(disk), '-sandbox', SANDBOX, '-qmp', 'stdio'],
  ].flat();
  const limits = { vcpus: 1, memoryMb: 64, fileBytes: 1024 * 1024 };
  try {
    const trial = { vmId: TRIAL_ID, runDir, program: qemuPath, args, readOnlyFiles: [], devices: [], limits };
    const { command, args: jailed } = await jail.prepare(trial);
    await runCommand(command, jailed, { input: QUIT });
    return true;
  } catch {
    return false;
  } finally {
    await jail.release(TRIAL_ID);
    rmSync(runDir, { recursive: true, force: true });
  }
}
