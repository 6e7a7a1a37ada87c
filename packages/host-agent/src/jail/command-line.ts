// Builds the command that starts a VM's process in its jail, as a pure function. Four programs run one after the other,
// each starting the next: a shell joins the control groups and sets resource limits; bubblewrap creates the namespaces
// and a root folder; setpriv switches to the VM's uid and drops all capabilities; env replaces the environment
// (bubblewrap always sets PWD) and enters the run directory, which root without capabilities may not enter. All this
// takes about 5 ms.
//
// The network namespace has no interface but its own loopback. QEMU gets its tap as a descriptor. So a compromised QEMU
// reaches no port and no abstract socket of the host or of another VM. In addition, the firewall refuses all traffic of
// the VMs' uids (uidRange in uid-pool.ts).
import { dirname } from 'node:path';
import { maxTasks } from './cgroup-settings.ts';
import type { JailedProcess, VmLimits } from './jail.ts';
import type { ProgramFiles } from './program-files.ts';

/** The whole environment of QEMU. One heap for all its threads saves 1.3 of the 40.8 MB of an idle machine (measured). */
export const ENVIRONMENT = ['MALLOC_ARENA_MAX=1'];

/** Absolute paths without symlinks. */
export type JailPrograms = { bwrap: string; setpriv: string; env: string };

/** QEMU has about 30 descriptors of its own, and one for each disk, connection and request in progress. */
const MAX_DESCRIPTORS = 1024;
/**
 * The oom_score_adj of VMs (proc(5); 1000 is the highest). When the host is out of memory, the kernel kills the process
 * with the highest score. The processes of the service have a low value (packages/service).
 */
export const VM_OOM_SCORE_ADJ = 900;
/** The unit of `ulimit -f`, defined by POSIX. */
const BLOCK_BYTES = 512;

export type JailPlan = {
  process: JailedProcess;
  uid: number;
  /** The cgroup files that the shell writes its pid into. */
  procsFiles: readonly string[];
  /** Pairs of [device node to bind, path in the jail]. */
  devices: readonly (readonly [string, string])[];
  files: ProgramFiles;
};

/** Returns the arguments for `/bin/sh`. The run directory, the files and the devices must exist. */
export function jailArgs(programs: JailPrograms, plan: JailPlan): string[] {
  const { process: jailed, uid } = plan;
  const readOnly = [...plan.files.visible, ...jailed.readOnlyFiles];
  const writable = [...(jailed.writableFiles ?? []), jailed.runDir];
  const places = [...readOnly, ...writable, ...plan.devices.map(([, place]) => place)];
  return [
    ['-c', shellScript(jailed.limits), 'sandbar-jail', String(plan.procsFiles.length), ...plan.procsFiles],
    [
      programs.bwrap,
      '--unshare-pid',
      '--as-pid-1',
      '--unshare-net',
      '--unshare-ipc',
      '--unshare-uts',
      '--unshare-cgroup-try',
    ],
    ['--hostname', 'machine', '--proc', '/proc'],
    // bubblewrap would make missing parent folders accessible to root only.
    foldersAbove(places).flatMap((folder) => ['--dir', folder]),
    plan.files.links.flatMap(([target, name]) => ['--symlink', target, name]),
    readOnly.flatMap((path) => ['--ro-bind', path, path]),
    plan.devices.flatMap(([source, place]) => ['--dev-bind', source, place]),
    writable.flatMap((path) => ['--bind', path, path]),
    ['--remount-ro', '/'],
    // The capabilities that setpriv needs until it has dropped everything.
    ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID', '--cap-add', 'CAP_SETPCAP'],
    [programs.setpriv, '--reuid', String(uid), '--regid', String(uid), '--clear-groups', '--no-new-privs'],
    ['--bounding-set=-all', '--inh-caps=-all', '--ambient-caps=-all'],
    [programs.env, '-i', '-C', jailed.runDir, ...ENVIRONMENT, jailed.program, ...jailed.args],
  ].flat();
}

/**
 * Returns the shell script. Its arguments: a count, that many cgroup files to write the pid into, then the command. The
 * umask gives sockets and files of the VM mode 0600 (ISO-7).
 */
function shellScript({ fileBytes, vcpus }: VmLimits): string {
  const tasks = maxTasks(vcpus);
  return [
    'set -e; umask 0177',
    `ulimit -c 0; ulimit -n ${MAX_DESCRIPTORS}; ulimit -f ${Math.ceil(fileBytes / BLOCK_BYTES)}`,
    // A limit per uid, for hosts without the pids controller. dash calls the option -p, bash calls it -u.
    `ulimit -p ${tasks} 2>/dev/null || ulimit -u ${tasks}`,
    `echo ${VM_OOM_SCORE_ADJ} > /proc/self/oom_score_adj`,
    'files=$1; shift',
    'while [ "$files" -gt 0 ]; do echo $$ > "$1"; shift; files=$((files - 1)); done',
    'exec "$@"',
  ].join('; ');
}

/** Returns every parent folder of the given paths, outermost first. */
function foldersAbove(places: readonly string[]): string[] {
  const folders = new Set<string>();
  for (const place of places) {
    for (let folder = dirname(place); folder !== '/'; folder = dirname(folder)) folders.add(folder);
  }
  return [...folders].sort();
}
