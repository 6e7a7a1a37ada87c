// Starts the processes that must not run as root. When the caller is root, each of them runs as the service's account,
// without capabilities (but that for low ports, if it listens on one), in its own mount namespace. There a folder under /run shows only the folders that the process
// needs, because the checkout and the data directory may lie where only root may go (/root, a mktemp directory). The
// namespace ends with the process, so no mount is left behind. Each program in the launch chain replaces itself by
// `exec`, which keeps the process id and the file descriptors, including the IPC channel.
import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import type { UserIds } from '../setup/service-user.ts';

/** The capabilities of a process: none, or only that to listen on ports below 1024. In the form of setpriv. */
export type Capabilities = '-all' | '-all,+net_bind_service';

/** Arguments: mount point, uid, gid, capabilities, then (options, source, name) for each folder, `--`, the command. */
const ENTER = `
set -eu
at=$1 uid=$2 gid=$3 capabilities=$4
shift 4
mount -t tmpfs -o mode=0755,nosuid,nodev,size=256k sandbar "$at"
while [ "$1" != -- ]; do
  mkdir -p "$at/$3"
  mount -o "$1" "$2" "$at/$3"
  shift 3
done
shift
cd "$at"
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs --bounding-set="$capabilities" --inh-caps="$capabilities" --ambient-caps="$capabilities" -- "$@"
`;

type Bind = { from: string; name: string; options: string };

/**
 * The file tree that an unprivileged process sees: only the checkout's code and the folders passed to `bind`, under other
 * paths than the real ones. So give the process only paths below `checkout` and paths that `bind` returned. If the caller
 * is not root, nothing is confined and all paths are the real ones.
 */
export interface Confinement {
  /** The account of the process. Undefined: the caller is not root, and everything runs as the caller. */
  readonly user: UserIds | undefined;
  /** The path of the checkout as the process sees it, then its real path. */
  readonly checkout: string;
  readonly hostCheckout: string;
  /**
   * Shows a folder to the process as `home/<name>`, writable as its modes allow. Returns the path that the process
   * sees.
   */
  bind(from: string, name: string): string;
  /** Returns the command line that runs a command so that it sees only these folders. */
  wrap(command: string, args: readonly string[]): [string, ...string[]];
}

/** For a caller without root, who cannot confine anything. */
export function noConfinement(checkout: string): Confinement {
  return {
    user: undefined,
    checkout,
    hostCheckout: checkout,
    bind: (from) => from,
    wrap: (command, args) => [command, ...args],
  };
}

/** The folder below which the processes of one data directory see their folders. */
export function mountPointOf(home: string): string {
  return `/run/sandbar-${createHash('sha256').update(home).digest('hex').slice(0, 8)}`;
}

/** A new confinement that shows only the checkout's code, read-only. */
export function confinementFor(
  mountPoint: string,
  checkout: string,
  user: UserIds,
  capabilities: Capabilities = '-all',
): Confinement {
  // Show two folders of the checkout and not the checkout itself, which may be readable by its owner only.
  const binds: Bind[] = ['packages', 'node_modules'].map((name) => ({
    from: `${checkout}/${name}`,
    name: `app/${name}`,
    options: 'bind,ro,nosuid,nodev',
  }));
  return {
    user,
    checkout: `${mountPoint}/app`,
    hostCheckout: checkout,
    bind(from, name) {
      binds.push({ from, name: `home/${name}`, options: 'bind,nosuid,nodev' });
      return `${mountPoint}/home/${name}`;
    },
    wrap(command, args) {
      const mounts = binds.flatMap(({ from, name, options }) => [options, from, name]);
      const enter = [
        '/bin/sh',
        '-c',
        ENTER,
        'sandbar',
        mountPoint,
        String(user.uid),
        String(user.gid),
        capabilities,
        ...mounts,
        '--',
      ];
      return ['unshare', '--mount', '--propagation', 'private', '--', ...enter, command, ...args];
    },
  };
}

export function makeMountPoint(mountPoint: string): void {
  mkdirSync(mountPoint, { recursive: true, mode: 0o755 });
}

/** Call this only after the processes have ended: removing a mount point also unmounts it in their namespaces. */
export function removeMountPoint(mountPoint: string): void {
  rmSync(mountPoint, { recursive: true, force: true });
}

export type LaunchOptions = {
  env: NodeJS.ProcessEnv;
  stdio: StdioOptions;
};

/** Starts a confined command in a new session. Its environment is `env` and a few fixed values, such as PATH. */
export function launchUnprivileged(
  confinement: Confinement,
  command: string,
  args: readonly string[],
  { env, stdio }: LaunchOptions,
): ChildProcess {
  const [program, ...rest] = confinement.wrap(command, args);
  return spawn(program, rest, {
    stdio,
    detached: true,
    cwd: '/',
    env: {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      LANG: 'C.UTF-8',
      HOME: '/nonexistent',
      ...env,
    },
  });
}

/** Writes `input` to a child with piped standard streams and waits for its end. `output`: its stdout and stderr. */
export async function runToEnd(child: ChildProcess, input: string): Promise<{ code: number; output: string }> {
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-64 * 1024);
    });
  }
  // A child that ends early breaks this pipe. Its exit code and output say why, so this error is ignored.
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code: code ?? 1, output }));
  });
}
