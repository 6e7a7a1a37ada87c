/**
 * Runs a program on untrusted files, confined so that their author gains little from a bug in the program. The program
 * gets its own namespaces, a root with the distribution's programs and the given files, no devices, few capabilities,
 * and a network only if it needs one. It only reads an image's files and never executes them.
 */
import { realpathSync } from 'node:fs';
import { runBuildCommand } from '../build-command.ts';
import { ImageError } from '../image-error.ts';
import { watchSize } from './size-watch.ts';

/** Capabilities for writing a tree with all its owners, modes, devices and extended attributes. */
export const TREE_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'MKNOD', 'SETFCAP'] as const;
type Capability = (typeof TREE_CAPABILITIES)[number] | 'DAC_READ_SEARCH';

/** CPU time limit of one hour: many times what the largest image needs, but endless work ends. */
const CPU_LIMIT = '--cpu=3600';
/** Memory limit of 4 GiB: several times what the largest image needs. */
const MEMORY_LIMIT = '--data=4294967296';

export interface ConfinedCommand {
  command: string;
  args: readonly string[];
  /** Pairs of [path outside, path inside]. */
  readOnly: readonly (readonly [string, string])[];
  writable: readonly (readonly [string, string])[];
  capabilities: readonly Capability[];
  /** Largest size in bytes of any file that the program writes. */
  fileBytes: number;
  /** A folder outside, and the largest size in bytes of all files in it together. The program is killed above that. */
  total?: { folder: string; bytes: number };
  hasNetwork?: boolean;
  env?: Readonly<Record<string, string>>;
}

/** Runs the program to its end and returns its standard output. Throws ImageError, like `runBuildCommand`. */
export async function runConfined(request: ConfinedCommand): Promise<Buffer> {
  const [command = '', ...args] = confinedArgs(request);
  const { total } = request;
  const run = (signal?: AbortSignal) => runBuildCommand({ command, args, shownAs: request, ...(signal && { signal }) });
  if (total === undefined) return run();
  const [tooLarge, ended] = [new AbortController(), new AbortController()];
  const watching = watchSize(total.folder, total.bytes, () => tooLarge.abort(), ended.signal);
  try {
    return await run(tooLarge.signal);
  } catch (error) {
    if (!tooLarge.signal.aborted) throw error;
    const gigabytes = (total.bytes / 2 ** 30).toFixed(1);
    throw new ImageError(`The image is refused: it has more than ${gigabytes} GB; --max-gb allows more`);
  } finally {
    ended.abort();
    await watching;
  }
}

/**
 * Returns the whole command line as a pure function of the request. The program is killed when the process that started
 * it ends, for whatever reason.
 */
export function confinedArgs(request: ConfinedCommand): string[] {
  return [
    [
      'setpriv',
      '--pdeathsig',
      'KILL',
      'prlimit',
      `--fsize=${request.fileBytes}`,
      CPU_LIMIT,
      MEMORY_LIMIT,
      '--core=0',
      '--',
    ],
    ['bwrap', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try', '--hostname', 'image'],
    request.hasNetwork ? [] : ['--unshare-net'],
    ['--die-with-parent', '--new-session', '--clearenv', '--setenv', 'PATH', '/usr/sbin:/usr/bin'],
    Object.entries(request.env ?? {}).flatMap(([name, value]) => ['--setenv', name, value]),
    ['--ro-bind', '/usr', '/usr', ...SYSTEM_FOLDERS.flatMap(systemFolder)],
    // bubblewrap mounts everything else with `nodev`, so nobody can open a device node that an image contains.
    ['--proc', '/proc', '--dev-bind', '/dev/null', '/dev/null'],
    request.readOnly.flatMap(([outside, inside]) => ['--ro-bind', outside, inside]),
    request.writable.flatMap(([outside, inside]) => ['--bind', outside, inside]),
    ['--remount-ro', '/', '--chdir', '/', '--cap-drop', 'ALL'],
    request.capabilities.flatMap((name) => ['--cap-add', `CAP_${name}`]),
    ['--', request.command, ...request.args],
  ].flat();
}

const SYSTEM_FOLDERS = ['/bin', '/sbin', '/lib', '/lib64'];

/**
 * Returns the arguments for a system folder, which is a symlink into /usr on most systems and a real folder on others.
 */
function systemFolder(folder: string): string[] {
  try {
    const real = realpathSync(folder);
    return real === folder ? ['--ro-bind', folder, folder] : ['--symlink', real.slice(1), folder];
  } catch {
    return [];
  }
}
