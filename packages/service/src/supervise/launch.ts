// Starts the processes that must not be root. As root, each gets the service's account, no capabilities, and a mount
// namespace of its own in which a small folder under /run shows the few folders it needs: the checkout and the data
// directory may lie where only root may go (/root, a mktemp directory), and the process sees no more of them than that.
// The namespace dies with the process, so no mount is ever left. `exec` all the way keeps the process id, the
// descriptors and with them the IPC channel.
import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import type { UserIds } from '../setup/service-user.ts';

/** Arguments: mount point, uid, gid, then (options, source, name) for each folder, `--`, the command. */
const ENTER = `
set -eu
at=$1 uid=$2 gid=$3
shift 3
mount -t tmpfs -o mode=0755,nosuid,nodev,size=256k sandbar "$at"
while [ "$1" != -- ]; do
  mkdir -p "$at/$3"
  mount -o "$1" "$2" "$at/$3"
  shift 3
done
shift
cd "$at"
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"
`;

type Bind = { from: string; name: string; options: string };

/**
 * What an unprivileged process sees. Paths given to it are those of `checkout` and of what `bind` returned; without
 * root they are the real ones.
 */
export interface Confinement {
  /** Undefined: the caller is no root, and everything runs as the caller. */
  readonly user: UserIds | undefined;
  /** The checkout as the process sees it, and as it is. */
  readonly checkout: string;
  readonly hostCheckout: string;
  /** Shows a folder of the host to the process under `home/<name>`, writable as its modes allow; returns the path there. */
  bind(from: string, name: string): string;
  /** Arguments that put a command into it. */
  wrap(command: string, args: readonly string[]): [string, ...string[]];
}

/** For a caller without root: nothing is confined. */
export function noConfinement(checkout: string): Confinement {
  return {
    user: undefined,
    checkout,
    hostCheckout: checkout,
    bind: (from) => from,
    wrap: (command, args) => [command, ...args],
  };
}

/** The folder under which the processes of one data directory see theirs. */
export function mountPointOf(home: string): string {
  return `/run/sandbar-${createHash('sha256').update(home).digest('hex').slice(0, 8)}`;
}

/** A fresh confinement with only the checkout's code in it, read-only. */
export function confinementFor(mountPoint: string, checkout: string, user: UserIds): Confinement {
  // The two folders and not the checkout itself, which may be readable by its owner only.
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

/** Removing a mount point would take the mounts of other namespaces along, so only when its processes are gone. */
export function removeMountPoint(mountPoint: string): void {
  rmSync(mountPoint, { recursive: true, force: true });
}

export type LaunchOptions = {
  env: NodeJS.ProcessEnv;
  stdio: StdioOptions;
};

/** Starts a command in a session of its own, confined. The environment is the one given and a PATH, nothing else. */
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

/** Waits for a child with piped standard streams; `output` is what it wrote to both. */
export async function runToEnd(child: ChildProcess, input: string): Promise<{ code: number; output: string }> {
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-64 * 1024);
    });
  }
  // A child that ends before it has read everything says why by its exit code, so the broken pipe is not news.
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code: code ?? 1, output }));
  });
}
