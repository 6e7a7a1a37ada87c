// Builds commands that run parts of the agent as separate Node processes, because those parts parse what guests send.
// In a jail such a process has its own uid and control group, no capabilities, and sees only Node, Node's libraries and
// its own code.
import { realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openCgroups } from './cgroup.ts';
import { findProgramFiles } from './program-files.ts';
import { findTool } from './tools.ts';

/** V8's heap in MiB. */
const HEAP_MB = 96;
/**
 * The limits of the control group. cgroup.ts adds 256 MiB and half a processor to them. Node itself takes 80 MiB. The
 * rest is for its heap and for data that it has received but not passed on yet.
 */
const LIMITS = { vcpus: 1, memoryMb: 64, fileBytes: 0 };

/** The folder of the agent's sources. */
export const SOURCES = join(import.meta.dirname, '..');

export type NodeProgram = {
  /** The file that Node runs. */
  main: string;
  /** The files and folders that Node may read. */
  code: readonly string[];
  /** The working directory. */
  dir: string;
};

export type NodeJail = {
  /** Name of the process's control group, and its hostname in the jail. */
  name: string;
  /** A path in the data directory. The parent of the control group is named after this path. */
  place: string;
  /** The process's uid, which is also its gid. */
  uid: number;
  /** Files and folders that the process sees besides its code. */
  visible: readonly string[];
  /** 'host': the host's network. 'none': no interface but its own loopback. */
  network: 'host' | 'none';
};

export type NodeCommand = {
  command: string;
  args: string[];
  /** Removes what was made on the host for the process. Call it when the process has ended. */
  remove: () => Promise<void>;
};

/**
 * Returns the command for an agent without root: only Node's own permissions keep the program from files and programs.
 * Throws when a tool is missing.
 */
export function confinedNode(program: NodeProgram): NodeCommand {
  const { setpriv, env, node } = findPrograms();
  const args = ['--no-new-privs', '--pdeathsig', 'KILL', ...nodeCommand(env, node, program)];
  return { command: setpriv, args, remove: async () => {} };
}

/**
 * Returns the command for an agent with root. The program inherits the descriptors that the caller passes to the
 * command. Kills a process that an earlier agent left under this name. Throws when a tool is missing.
 */
export async function jailedNode(program: NodeProgram, jail: NodeJail): Promise<NodeCommand> {
  const { setpriv, env, node } = findPrograms();
  const { name, uid } = jail;
  const cgroups = openCgroups(jail.place);
  await cgroups.remove(name);
  const procsFiles = cgroups.create(name, LIMITS);
  const { visible, links } = await findProgramFiles([setpriv, env, node]);
  const shown = [...visible, ...program.code, ...jail.visible];
  const args = [
    ['-c', SCRIPT, `sandbar-${name}`, String(procsFiles.length), ...procsFiles],
    [findTool('bwrap', 'bubblewrap'), '--die-with-parent', '--unshare-pid', '--as-pid-1', '--unshare-ipc'],
    ['--unshare-uts', '--unshare-cgroup-try', '--hostname', name, '--proc', '/proc'],
    jail.network === 'none' ? ['--unshare-net'] : [],
    // bubblewrap would make missing parent folders accessible to root only.
    foldersAbove(shown).flatMap((folder) => ['--dir', folder]),
    links.flatMap(([target, link]) => ['--symlink', target, link]),
    shown.flatMap((path) => ['--ro-bind', path, path]),
    ['--remount-ro', '/'],
    // The capabilities that setpriv needs until it has dropped everything.
    ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID', '--cap-add', 'CAP_SETPCAP'],
    [setpriv, '--reuid', String(uid), '--regid', String(uid), '--clear-groups', '--no-new-privs'],
    ['--bounding-set=-all', '--inh-caps=-all', '--ambient-caps=-all'],
    nodeCommand(env, node, program),
  ].flat();
  const remove = async () => {
    await cgroups.remove(name);
    cgroups.removeAll();
  };
  return { command: '/bin/sh', args, remove };
}

/**
 * Joins the control groups and sets limits, then runs the command. Arguments: the number of cgroup files, those files,
 * the command.
 */
const SCRIPT = [
  'set -e; umask 0177; ulimit -c 0; ulimit -f 0',
  'files=$1; shift',
  'while [ "$files" -gt 0 ]; do echo $$ > "$1"; shift; files=$((files - 1)); done',
  'exec "$@"',
].join('; ');

function findPrograms(): { setpriv: string; env: string; node: string } {
  return {
    setpriv: findTool('setpriv', 'util-linux'),
    env: findTool('env', 'coreutils'),
    node: realpathSync(process.execPath),
  };
}

function nodeCommand(env: string, node: string, { main, code, dir }: NodeProgram): string[] {
  return [
    ...[env, '-i', '-C', dir, node],
    '--disable-warning=ExperimentalWarning',
    '--max-semi-space-size=2',
    `--max-old-space-size=${HEAP_MB}`,
    '--permission',
    ...code.map((path) => `--allow-fs-read=${path}`),
    main,
  ];
}

/** Returns every parent folder of the given paths, outermost first. */
function foldersAbove(places: readonly string[]): string[] {
  const folders = new Set<string>();
  for (const place of places) {
    for (let folder = dirname(place); folder !== '/'; folder = dirname(folder)) folders.add(folder);
  }
  return [...folders].sort();
}
