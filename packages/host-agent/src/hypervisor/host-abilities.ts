// Finds out whether QEMU can use io_uring and vhost-net on this host. The existence of io_uring proves nothing, because
// the build of QEMU, the kernel's settings or the jail may forbid it. So a QEMU in the jail tries it once, when the
// agent starts.
import { existsSync, rmSync } from 'node:fs';
import type { KvmChoices } from '../config.ts';
import type { Jail } from '../jail/jail.ts';
import { runCommand } from '../run-command.ts';
import type { QemuHost } from './accelerators.ts';
import { SANDBOX } from './qemu-args.ts';

export const VHOST_DEVICE = '/dev/vhost-net';
/** The trial runs under an id that no VM has. */
const TRIAL_ID = '000000000000';
const QUIT = '{"execute":"qmp_capabilities"}{"execute":"quit"}';

export type KvmAbilities = Pick<QemuHost, 'cpuModel' | 'usesDiskThread' | 'usesIoUring' | 'usesVhostNet'>;
type KvmHost = { jail: Jail; qemuPath: string; runDir: string; hasTaps: boolean };

/**
 * Returns which settings the VMs of a KVM host use. `runDir`: a run directory for the trial, which is removed again.
 * Throws when the operator wants vhost-net and the host does not have it.
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
 * Whether a QEMU in the jail can open a file with io_uring. Debian's `-microvm` build cannot. The trial opens QEMU's
 * own program, because every jail shows that file.
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
