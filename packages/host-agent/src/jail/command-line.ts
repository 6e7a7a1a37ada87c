// The command that a VM's process starts through, as a pure function. Four steps, each replacing the one before: a shell
// joins the cgroup and sets limits; bubblewrap makes the namespaces and a root of its own; setpriv becomes the VM's uid
// and gives up every capability; env empties the environment (bubblewrap always sets PWD) and enters the run directory,
// which root without capabilities may not. It takes some 5 ms.
//
// The network namespace is the host's: QEMU opens its tap by name, and a tap has to be opened in the namespace that it
// is in. So keeping a QEMU that was taken over away from the host's own ports is the firewall's work, by uid
// (uid-pool.ts, uidRange).
import { dirname } from 'node:path';
import { maxTasks } from './cgroup.ts';
import type { JailedProcess, VmLimits } from './jail.ts';
import type { ProgramFiles } from './program-files.ts';

/** Absolute paths, without symlinks. */
export type JailPrograms = { bwrap: string; setpriv: string; env: string };

/** QEMU has some 30 descriptors of its own, and one more for each disk, connection and request that it works on. */
const MAX_DESCRIPTORS = 1024;
/** POSIX: the unit of `ulimit -f`. */
const BLOCK_BYTES = 512;

export type JailPlan = {
  process: JailedProcess;
  uid: number;
  /** Files to write the pid into. */
  procsFiles: readonly string[];
  /** [what is bound, the place it is seen at]. */
  devices: readonly (readonly [string, string])[];
  files: ProgramFiles;
};

/** Arguments for `/bin/sh`. */
export function jailArgs(programs: JailPrograms, plan: JailPlan): string[] {
  const { process: jailed, uid } = plan;
  const readOnly = [...plan.files.visible, ...jailed.readOnlyFiles];
  const writable = [...(jailed.writableFiles ?? []), jailed.runDir];
  const places = [...readOnly, ...writable, ...plan.devices.map(([, place]) => place)];
  return [
    ['-c', shellScript(jailed.limits), 'sandbar-jail', String(plan.procsFiles.length), ...plan.procsFiles],
    [programs.bwrap, '--unshare-pid', '--as-pid-1', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    ['--hostname', 'machine', '--proc', '/proc'],
    // Folders that bubblewrap makes on its own are closed to everyone but root.
    foldersAbove(places).flatMap((folder) => ['--dir', folder]),
    plan.files.links.flatMap(([target, name]) => ['--symlink', target, name]),
    readOnly.flatMap((path) => ['--ro-bind', path, path]),
    plan.devices.flatMap(([source, place]) => ['--dev-bind', source, place]),
    writable.flatMap((path) => ['--bind', path, path]),
    ['--remount-ro', '/'],
    // What setpriv needs to give up everything.
    ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID', '--cap-add', 'CAP_SETPCAP'],
    [programs.setpriv, '--reuid', String(uid), '--regid', String(uid), '--clear-groups', '--no-new-privs'],
    ['--bounding-set=-all', '--inh-caps=-all', '--ambient-caps=-all'],
    [programs.env, '-i', '-C', jailed.runDir, jailed.program, ...jailed.args],
  ].flat();
}

/** `$1` files to write the pid into follow it, then the command. Sockets and files of the VM have mode 0600 (ISO-7). */
function shellScript({ fileBytes, vcpus }: VmLimits): string {
  const tasks = maxTasks(vcpus);
  return [
    'set -e; umask 0177',
    `ulimit -c 0; ulimit -n ${MAX_DESCRIPTORS}; ulimit -f ${Math.ceil(fileBytes / BLOCK_BYTES)}`,
    // A limit of the uid, for a host without the cgroup; dash and bash disagree about its letter.
    `ulimit -p ${tasks} 2>/dev/null || ulimit -u ${tasks}`,
    'files=$1; shift',
    'while [ "$files" -gt 0 ]; do echo $$ > "$1"; shift; files=$((files - 1)); done',
    'exec "$@"',
  ].join('; ');
}

/** Every folder above the places, outermost first. */
function foldersAbove(places: readonly string[]): string[] {
  const folders = new Set<string>();
  for (const place of places) {
    for (let folder = dirname(place); folder !== '/'; folder = dirname(folder)) folders.add(folder);
  }
  return [...folders].sort();
}
