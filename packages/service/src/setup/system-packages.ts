// Installs the programs that the service needs from the distribution. On Debian and Ubuntu it prints the names of the
// missing packages and installs them with apt. If it may not install them, it throws a Problem with the commands to
// run.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { hasErrorCode, Problem } from '../problem.ts';
import type { Progress } from '../progress.ts';
import { findExecutable } from './executables.ts';

export type Requirement = {
  /** Name in Debian and Ubuntu. */
  package: string;
  /** The package counts as installed when this program or this file exists. */
  shownBy: { program: string } | { file: string };
  /** Needed only when root, or when another user, runs the service. */
  only?: 'root' | 'user';
};

const REQUIREMENTS: readonly Requirement[] = [
  { package: 'qemu-system-x86', shownBy: { program: 'qemu-system-x86_64' } },
  { package: 'qemu-utils', shownBy: { program: 'qemu-img' } },
  { package: 'mmdebstrap', shownBy: { program: 'mmdebstrap' } },
  { package: 'e2fsprogs', shownBy: { program: 'mkfs.ext4' } },
  { package: 'nftables', shownBy: { program: 'nft' }, only: 'root' },
  // Deletes the kernel's connection entries of an address before another machine gets that address.
  { package: 'conntrack', shownBy: { program: 'conntrack' }, only: 'root' },
  { package: 'iproute2', shownBy: { program: 'ip' } },
  { package: 'xz-utils', shownBy: { program: 'xz' } },
  { package: 'zstd', shownBy: { program: 'zstd' } },
  { package: 'cpio', shownBy: { program: 'cpio' } },
  { package: 'kmod', shownBy: { program: 'depmod' } },
  { package: 'util-linux', shownBy: { program: 'setpriv' }, only: 'root' },
  { package: 'bubblewrap', shownBy: { program: 'bwrap' }, only: 'root' },
  { package: 'mount', shownBy: { program: 'mount' }, only: 'root' },
  { package: 'passwd', shownBy: { program: 'useradd' }, only: 'root' },
  // Without root the image is built in a user namespace.
  { package: 'uidmap', shownBy: { program: 'newuidmap' }, only: 'user' },
  { package: 'debian-archive-keyring', shownBy: { file: '/usr/share/keyrings/debian-archive-keyring.gpg' } },
  { package: 'ca-certificates', shownBy: { file: '/etc/ssl/certs/ca-certificates.crt' } },
];

/** The packages that this machine lacks. */
export function missingPackages(
  isRoot: boolean,
  isThere: (shownBy: Requirement['shownBy']) => boolean = isPresent,
  requirements: readonly Requirement[] = REQUIREMENTS,
) {
  return requirements
    .filter(({ only }) => only === undefined || (only === 'root') === isRoot)
    .filter(({ shownBy }) => !isThere(shownBy))
    .map((requirement) => requirement.package);
}

export function isPresent(shownBy: Requirement['shownBy']): boolean {
  return 'file' in shownBy ? existsSync(shownBy.file) : findExecutable(shownBy.program) !== undefined;
}

/** Installs the missing packages. Throws Problem with a line for each package that the person must install. */
export async function ensureSystemPackages(isRoot: boolean, progress: Progress): Promise<void> {
  const missing = missingPackages(isRoot);
  if (missing.length === 0) return;
  await installPackages(missing, isRoot, progress);
  const stillMissing = missingPackages(isRoot);
  if (stillMissing.length > 0) throw missingProblem(stillMissing);
}

/**
 * Names the packages, then installs them with apt, as root or through sudo. Throws Problem when that is not possible.
 */
export async function installPackages(packages: readonly string[], isRoot: boolean, progress: Progress): Promise<void> {
  const prefix = await privilegePrefix(isRoot);
  if (findExecutable('apt-get') === undefined || prefix === undefined) throw missingProblem(packages);

  progress.say(`  … installing from the distribution${prefix.length > 0 ? ' (sudo)' : ''}: ${packages.join(' ')}`);
  const apt = [...prefix, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '-q', '-o', 'DPkg::Lock::Timeout=120'];
  // `apt-get update` may fail for one of many sources. The old package lists often suffice; if they do not, the install
  // below fails with the reason.
  await run([...apt, 'update']);
  const install = [...apt, 'install', '-y', '--no-install-recommends', ...packages];
  const { code, output } = await run(install);
  if (code === 0) return;
  throw new Problem(
    `apt-get could not install ${packages.join(' ')}: mend what it says and try again.\n${lastLines(output, 12)}`,
  );
}

/** What to put before a command that needs root. Undefined: this account may not run it. */
async function privilegePrefix(isRoot: boolean): Promise<string[] | undefined> {
  if (isRoot) return [];
  if (findExecutable('sudo') === undefined) return undefined;
  const withoutPassword = await run(['sudo', '-n', 'true']);
  if (withoutPassword.code === 0) return ['sudo', '-n'];
  return process.stdin.isTTY && process.stderr.isTTY ? ['sudo'] : undefined;
}

function missingProblem(packages: readonly string[]): Problem {
  const hasApt = findExecutable('apt-get') !== undefined;
  const lines = packages.map((name) =>
    hasApt
      ? `  ${name}: sudo apt-get install --no-install-recommends ${name}`
      : `  ${name}: install what your distribution calls it (Debian's name is ${name})`,
  );
  return new Problem(
    `Sandbar needs programs that this account may not install; run these and try again:\n${lines.join('\n')}`,
  );
}

async function run(command: readonly string[]): Promise<{ code: number; output: string }> {
  const [program = '', ...args] = command;
  return new Promise((resolve, reject) => {
    // sudo asks for a password on the terminal itself, so standard input may stay closed.
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        output = (output + text).slice(-64 * 1024);
      });
    }
    child.once('error', (error) =>
      hasErrorCode(error, 'ENOENT') ? resolve({ code: 127, output: error.message }) : reject(error),
    );
    child.once('close', (code) => resolve({ code: code ?? 1, output }));
  });
}

function lastLines(text: string, count: number): string {
  return text.trim().split('\n').slice(-count).join('\n');
}
