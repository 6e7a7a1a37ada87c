// The command that starts the gateway, and what it may do. With root: a uid of its own, no capabilities, no network, a
// control group, and a view of only Node, its libraries and the gateway's code. Without root the gateway runs as the
// agent's account, and only Node's own permissions keep it from files and programs.
import { chmodSync, chownSync, existsSync, mkdirSync, realpathSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openCgroups } from '../jail/cgroup.ts';
import { findProgramFiles } from '../jail/program-files.ts';
import { findTool } from '../jail/tools.ts';
import { uidRange } from '../jail/uid-pool.ts';
import type { Account } from './guest-socket.ts';

/** V8's heap in MiB. A session takes about 0.1 MiB. */
const HEAP_MB = 96;
/** The name of the gateway's group, below a group of its own. */
const GROUP = 'gateway';
/**
 * The group's limits. cgroup.ts adds 256 MiB and half a processor to them. The gateway itself takes 80 MiB, the rest is
 * for its heap and for what guests have sent and the agent has not taken.
 */
const LIMITS = { vcpus: 1, memoryMb: 64, fileBytes: 0 };

const SOURCES = join(import.meta.dirname, '..');
const MAIN = join(import.meta.dirname, 'main.ts');

export type GatewayCommand = {
  command: string;
  args: string[];
  /** Undefined: the agent's own account. */
  owner: Account | undefined;
  /** Removes what was made on the host for the gateway. Call it when the gateway has ended. */
  remove: () => Promise<void>;
};

/** `home`: the data directory. `dir`: the folder of the guests' sockets, which it makes. Throws when a tool is missing. */
export async function gatewayCommand(home: string, dir: string, isRoot: boolean): Promise<GatewayCommand> {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const setpriv = findTool('setpriv', 'util-linux');
  const env = findTool('env', 'coreutils');
  const node = realpathSync(process.execPath);
  const code = codeFiles();
  const removeDir = () => rmSync(dir, { recursive: true, force: true });
  const program = [env, '-i', '-C', dir, node, ...nodeArgs(code)];
  if (!isRoot) {
    const args = ['--no-new-privs', '--pdeathsig', 'KILL', ...program];
    return { command: setpriv, args, owner: undefined, remove: async () => removeDir() };
  }
  const { last: uid } = uidRange(home);
  const owner = { uid, gid: uid };
  // The gateway may open the sockets in its folder, but neither list nor change it.
  chownSync(dir, 0, owner.gid);
  chmodSync(dir, 0o710);
  const cgroups = openCgroups(dir);
  // Ends the gateway of an agent that was killed, if it has not ended by itself.
  await cgroups.remove(GROUP);
  const procsFiles = cgroups.create(GROUP, LIMITS);
  const { visible, links } = await findProgramFiles([setpriv, env, node]);
  const shown = [...visible, ...code, dir];
  const args = [
    ['-c', SCRIPT, 'sandbar-gateway', String(procsFiles.length), ...procsFiles],
    [findTool('bwrap', 'bubblewrap'), '--die-with-parent', '--unshare-pid', '--as-pid-1', '--unshare-ipc'],
    ['--unshare-uts', '--unshare-cgroup-try', '--unshare-net', '--hostname', 'gateway', '--proc', '/proc'],
    // bubblewrap would make missing parent folders accessible to root only.
    foldersAbove(shown).flatMap((folder) => ['--dir', folder]),
    links.flatMap(([target, name]) => ['--symlink', target, name]),
    shown.flatMap((path) => ['--ro-bind', path, path]),
    ['--remount-ro', '/'],
    // The capabilities that setpriv needs until it has dropped everything.
    ['--cap-drop', 'ALL', '--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID', '--cap-add', 'CAP_SETPCAP'],
    [setpriv, '--reuid', String(uid), '--regid', String(uid), '--clear-groups', '--no-new-privs'],
    ['--bounding-set=-all', '--inh-caps=-all', '--ambient-caps=-all'],
    program,
  ].flat();
  const remove = async () => {
    await cgroups.remove(GROUP);
    cgroups.removeAll();
    removeDir();
  };
  return { command: '/bin/sh', args, owner, remove };
}

/** Joins the control groups and sets limits, then runs the command. Arguments: a count, that many files, the command. */
const SCRIPT = [
  'set -e; umask 0177; ulimit -c 0; ulimit -f 0',
  'files=$1; shift',
  'while [ "$files" -gt 0 ]; do echo $$ > "$1"; shift; files=$((files - 1)); done',
  'exec "$@"',
].join('; ');

function nodeArgs(code: readonly string[]): string[] {
  return [
    '--disable-warning=ExperimentalWarning',
    '--max-semi-space-size=2',
    `--max-old-space-size=${HEAP_MB}`,
    '--permission',
    ...code.map((path) => `--allow-fs-read=${path}`),
    MAIN,
  ];
}

/** The files and folders that hold the gateway's code, and the packages that it imports. */
function codeFiles(): string[] {
  const packages = join(SOURCES, '../..');
  return [
    join(SOURCES, '../package.json'),
    join(SOURCES, 'gateway'),
    join(SOURCES, 'guest'),
    join(packages, 'contract'),
    join(modulesAbove(packages), '@sandbar'),
  ];
}

/** Returns the nearest folder `node_modules` at or above `folder`. */
function modulesAbove(folder: string): string {
  const modules = join(folder, 'node_modules');
  if (existsSync(modules) || folder === '/') return modules;
  return modulesAbove(dirname(folder));
}

/** Returns every parent folder of the given paths, outermost first. */
function foldersAbove(places: readonly string[]): string[] {
  const folders = new Set<string>();
  for (const place of places) {
    for (let folder = dirname(place); folder !== '/'; folder = dirname(folder)) folders.add(folder);
  }
  return [...folders].sort();
}
