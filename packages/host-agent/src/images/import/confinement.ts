/**
 * Runs a program on what strangers made, so that a bug in it is not theirs to use: namespaces of its own, a root with
 * the distribution's programs and the files it was given, no device, no network unless it needs it, few capabilities.
 * Nothing of an image is ever executed, only read.
 */
import { realpathSync } from 'node:fs';
import { runBuildCommand } from '../build-command.ts';

/** What writing a tree with all owners, modes, devices and attributes takes. */
export const TREE_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'MKNOD', 'SETFCAP'] as const;
type Capability = (typeof TREE_CAPABILITIES)[number] | 'DAC_READ_SEARCH';

/** An hour of a processor: many times what the largest image takes, and an end for what never ends. */
const CPU_LIMIT = '--cpu=3600';

export interface ConfinedCommand {
  command: string;
  args: readonly string[];
  /** [path outside, path inside]. */
  readOnly: readonly (readonly [string, string])[];
  writable: readonly (readonly [string, string])[];
  capabilities: readonly Capability[];
  /** Bytes that any one file may grow to. */
  fileBytes: number;
  hasNetwork?: boolean;
  env?: Readonly<Record<string, string>>;
}

/** Runs it to its end and returns its standard output. Throws ImageError like `runBuildCommand`. */
export function runConfined(request: ConfinedCommand): Promise<Buffer> {
  const [command = '', ...args] = confinedArgs(request);
  return runBuildCommand({ command, args, shownAs: request });
}

/** Killed with its starter, whatever ends that one; the whole command line, as a pure function of the request. */
export function confinedArgs(request: ConfinedCommand): string[] {
  return [
    ['setpriv', '--pdeathsig', 'KILL', 'prlimit', `--fsize=${request.fileBytes}`, CPU_LIMIT, '--core=0', '--'],
    ['bwrap', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try', '--hostname', 'image'],
    request.hasNetwork ? [] : ['--unshare-net'],
    ['--die-with-parent', '--new-session', '--clearenv', '--setenv', 'PATH', '/usr/sbin:/usr/bin'],
    Object.entries(request.env ?? {}).flatMap(([name, value]) => ['--setenv', name, value]),
    ['--ro-bind', '/usr', '/usr', ...SYSTEM_FOLDERS.flatMap(systemFolder)],
    // bubblewrap mounts all else without devices, so that a device node that is made can be opened by nobody.
    ['--proc', '/proc', '--dev-bind', '/dev/null', '/dev/null'],
    request.readOnly.flatMap(([outside, inside]) => ['--ro-bind', outside, inside]),
    request.writable.flatMap(([outside, inside]) => ['--bind', outside, inside]),
    ['--remount-ro', '/', '--chdir', '/', '--cap-drop', 'ALL'],
    request.capabilities.flatMap((name) => ['--cap-add', `CAP_${name}`]),
    ['--', request.command, ...request.args],
  ].flat();
}

const SYSTEM_FOLDERS = ['/bin', '/sbin', '/lib', '/lib64'];

/** A link into /usr on a merged system, a folder on others. */
function systemFolder(folder: string): string[] {
  try {
    const real = realpathSync(folder);
    return real === folder ? ['--ro-bind', folder, folder] : ['--symlink', real.slice(1), folder];
  } catch {
    return [];
  }
}
