/**
 * Runs the child processes of the image build. They fail for reasons that the operator can fix (no network, a full
 * disk, a missing package), so an error message begins with one sentence about the cause and ends with the last lines
 * of output.
 */
import { spawn } from 'node:child_process';
import { endProcess } from '../jail/end-process.ts';
import { hasErrorCode, ImageError } from './image-error.ts';

const LAST_LINES = 12;
const KEPT_BYTES = 64 * 1024;
/** Limit for the standard output of a command, in bytes: many times the largest output that the build reads. */
const OUTPUT_MAX = 64 * 1024 * 1024;

/** The Debian and Ubuntu package of each tool that the build runs. */
const PACKAGE_OF_TOOL: Readonly<Record<string, string>> = {
  depmod: 'kmod',
  'dpkg-deb': 'dpkg',
  e2fsck: 'e2fsprogs',
  go: 'golang-go',
  mmdebstrap: 'mmdebstrap',
  tar: 'tar',
  xz: 'xz-utils',
};

export interface Command {
  command: string;
  args: readonly string[];
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** Written to the child's standard input, which is empty by default. */
  input?: string | Buffer;
  /** Open file descriptors that the child gets as 3, 4, and so on. The caller closes them. */
  descriptors?: readonly number[];
  /** The command line to show in errors when the real one is wrapped in other programs. */
  shownAs?: { command: string; args: readonly string[] };
  /** When this signal aborts, the command is killed and counts as failed. */
  signal?: AbortSignal;
  /** Called with every complete line of standard error. */
  onLine?: (line: string) => void;
}

/**
 * Runs a command to its end and returns its standard output. Throws ImageError when the command cannot be started, or
 * exits with another code than 0.
 */
export async function runBuildCommand(request: Command): Promise<Buffer> {
  const { command, args, input = '', descriptors = [], onLine } = request;
  const child = spawn(command, [...args], {
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    env: { ...process.env, LC_ALL: 'C.UTF-8', PATH: searchPath(), ...request.env },
    stdio: ['pipe', 'pipe', 'pipe', ...descriptors],
  });
  const output: Buffer[] = [];
  let errors = '';
  let unfinishedLine = '';
  let outputBytes = 0;
  child.stdout?.on('data', (chunk: Buffer) => {
    outputBytes += chunk.length;
    if (outputBytes <= OUTPUT_MAX) return output.push(chunk);
    output.length = 0;
    errors = `more than ${OUTPUT_MAX} bytes of output`;
    return kill();
  });
  const kill = () => endProcess(child);
  request.signal?.addEventListener('abort', kill);
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    errors = (errors + chunk).slice(-KEPT_BYTES);
    const lines = (unfinishedLine + chunk).split('\n');
    unfinishedLine = lines.pop() ?? '';
    for (const line of lines) onLine?.(line);
  });
  // A child that exits before reading its input fails with an exit code, so the broken pipe needs no report of its own.
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);

  return new Promise((resolve, reject) => {
    child.once('error', (error) => reject(startFailure(command, error)));
    child.once('close', (code, signal) => {
      request.signal?.removeEventListener('abort', kill);
      if (code === 0) return resolve(Buffer.concat(output));
      const said = errors.trim() === '' ? Buffer.concat(output).toString() : errors;
      const shown = request.shownAs ?? request;
      reject(new ImageError(describeFailure(shown.command, shown.args, signal ?? `exit code ${code}`, said)));
    });
  });
}

/** Returns PATH plus the sbin folders, which contain mkfs.ext4 and depmod and are not on the PATH of every account. */
export function searchPath(): string {
  return `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/local/sbin:/usr/sbin:/sbin`;
}

function startFailure(command: string, error: Error): ImageError {
  const isMissing = hasErrorCode(error, 'ENOENT');
  return new ImageError(isMissing ? describeMissing(command) : `Cannot run ${command}: ${error.message}`);
}

function describeMissing(command: string): string {
  const packageName = PACKAGE_OF_TOOL[command.slice(command.lastIndexOf('/') + 1)];
  const remedy = packageName === undefined ? 'install it' : `install it with: apt-get install ${packageName}`;
  return `The image build needs ${command}, which this host does not have; ${remedy}`;
}

/** Returns an error message: one sentence for a well-known cause, then the command and the last lines of its output. */
export function describeFailure(command: string, args: readonly string[], ending: string, output: string): string {
  const lines = output.trim().split('\n');
  const shownArgs = args.map((arg) => (arg.length > 80 ? `${arg.slice(0, 77)}...` : arg)).join(' ');
  const detail = `${command} ${shownArgs} (${ending}):\n  ${lines.slice(-LAST_LINES).join('\n  ')}`;
  return `${explain(output) ?? 'The image could not be made'}: ${detail}`;
}

const CAUSES: readonly { pattern: RegExp; remedy: string }[] = [
  {
    pattern: /no space left on device|disk quota exceeded/i,
    remedy: 'The disk is full: free some space or choose another cache folder',
  },
  {
    pattern: /NO_PUBKEY|EXPKEYSIG|is not signed|signatures were invalid/i,
    remedy: 'The package archive is not signed with a key of the recipe: check the mirror and the clock of this host',
  },
  {
    pattern: /server gave HTTP response to HTTPS client|x509: /,
    remedy: 'The registry has no certificate that this host trusts: add --insecure if you do',
  },
  {
    pattern: /manifest unknown|name unknown|unauthorized|access to the resource is denied/i,
    remedy: 'The registry has no such image, or wants a log-in first: skopeo login',
  },
  {
    pattern: /pinging container registry/,
    remedy: 'The registry does not answer: check its address, the network and https_proxy',
  },
  {
    pattern: new RegExp(
      'could not resolve|temporary failure|unable to connect|could not connect|connection (failed|timed out)|' +
        'failed to fetch|no such host|network is unreachable|i/o timeout|connection refused',
      'i',
    ),
    remedy:
      'The network does not answer: check the connection and http_proxy, or name a mirror in SANDBAR_DEBIAN_MIRROR',
  },
  {
    pattern: /subuid|subgid|newuidmap|unprivileged_userns|unshare.*not permitted/i,
    remedy:
      'This account may not make namespaces: run the build as root, or install uidmap and give the account ' +
      'a range in /etc/subuid and /etc/subgid',
  },
];

function explain(output: string): string | undefined {
  const missing = /^(?:unshare|setpriv): failed to execute (\S+): No such file/m.exec(output)?.[1];
  if (missing !== undefined) return describeMissing(missing);
  return CAUSES.find(({ pattern }) => pattern.test(output))?.remedy;
}
