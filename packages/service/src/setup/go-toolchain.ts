// Provides the Go toolchain that builds the guest agent. The distribution's Go may be too old to build it and too old
// to fetch a newer Go by itself (Debian 12 has 1.19). But any Go can download modules, and Go publishes its
// toolchains as modules.
import { execFile } from 'node:child_process';
import { chmod, mkdir, readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { goEnvironment } from '@sandbar/host-agent/images/agent.ts';
import { messageOf, Problem } from '../problem.ts';
import type { Progress, Say } from '../progress.ts';
import { findExecutable } from './executables.ts';
import { installPackages } from './system-packages.ts';

/** The version to fetch where the distribution's Go is too old. */
const FETCHED_VERSION = 'go1.26.8';
/** From this version on, `go` itself fetches the toolchain that a go.mod asks for. */
const SELF_UPDATING = [1, 21] as const;

const execute = promisify(execFile);

export type GoOptions = {
  cacheDir: string;
  /** The folder of the module to build. Its go.mod says which Go version is needed. */
  moduleDir: string;
  isRoot: boolean;
  progress: Progress;
  say: Say;
};

/**
 * Resolves with the path of a `go` that can build the module. Installs or downloads Go if needed. Throws Problem when
 * that fails.
 */
export async function ensureGo(options: GoOptions): Promise<string> {
  const needed = neededVersion(await readFile(path.join(options.moduleDir, 'go.mod'), 'utf8'));
  const present = await findGo();
  if (present !== undefined && builds(present.version, needed)) return present.path;

  const fetched = fetchedGoPath(options.cacheDir);
  if ((await versionOf(fetched)) !== undefined) return fetched;

  const old = present ?? (await installGo(options));
  if (builds(old.version, needed)) return old.path;
  await fetchToolchain(old.path, options);
  return fetched;
}

/** The `go` line of a go.mod, as numbers. */
export function neededVersion(goMod: string): readonly number[] {
  const match = /^go\s+(\d+)\.(\d+)/m.exec(goMod);
  return match ? [Number(match[1]), Number(match[2])] : SELF_UPDATING;
}

/**
 * Whether a Go of this version can build a module that needs `needed`, by itself or with a toolchain that it fetches.
 */
export function builds(version: readonly number[], needed: readonly number[]): boolean {
  return isAtLeast(version, needed) || isAtLeast(version, SELF_UPDATING);
}

function isAtLeast([major = 0, minor = 0]: readonly number[], [wantedMajor = 0, wantedMinor = 0]: readonly number[]) {
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}

type Go = { path: string; version: readonly number[] };

async function findGo(): Promise<Go | undefined> {
  for (const candidate of [findExecutable('go'), '/usr/local/go/bin/go']) {
    if (candidate === undefined) continue;
    const version = await versionOf(candidate);
    if (version !== undefined) return { path: candidate, version };
  }
  return undefined;
}

async function versionOf(goPath: string): Promise<readonly number[] | undefined> {
  const output = await execute(goPath, ['version'], { env: { ...process.env, GOTOOLCHAIN: 'local' } }).catch(
    () => undefined,
  );
  const match = /\bgo(\d+)\.(\d+)/.exec(output?.stdout ?? '');
  return match ? [Number(match[1]), Number(match[2])] : undefined;
}

async function installGo({ isRoot, progress }: GoOptions): Promise<Go> {
  await installPackages(['golang-go'], isRoot, progress);
  const installed = await findGo();
  if (installed !== undefined) return installed;
  throw new Problem('The package golang-go brought no working go: install Go 1.24 or newer and put it on the PATH');
}

function fetchedGoPath(cacheDir: string): string {
  const modules = goEnvironment(cacheDir).GOMODCACHE;
  return path.join(modules, 'golang.org', `toolchain@v0.0.1-${FETCHED_VERSION}.linux-amd64`, 'bin', 'go');
}

/** Downloads the toolchain with an older Go, which checks it against Go's checksum database. */
async function fetchToolchain(oldGo: string, { cacheDir, say }: GoOptions): Promise<void> {
  say(`fetching ${FETCHED_VERSION}, the one here is too old`);
  const ours = goEnvironment(cacheDir);
  const { GOMODCACHE } = ours;
  const env = { ...process.env, ...ours, GOFLAGS: '-modcacherw', GO111MODULE: 'on' };
  await mkdir(GOMODCACHE, { recursive: true });
  await execute(oldGo, ['mod', 'download', '-json', `golang.org/toolchain@v0.0.1-${FETCHED_VERSION}.linux-amd64`], {
    env,
    cwd: cacheDir,
  }).catch((error: unknown) => {
    throw new Problem(
      `Cannot fetch ${FETCHED_VERSION} through ${oldGo}: check the network, or install Go 1.24 or newer.\n${messageOf(error)}`,
    );
  });
  // Modules carry no file modes, so no file is executable yet. `go` comes last: if it runs, the toolchain is complete.
  const goPath = fetchedGoPath(cacheDir);
  const root = path.dirname(path.dirname(goPath));
  for (const folder of [path.join(root, 'pkg', 'tool'), path.join(root, 'bin')]) await makeExecutable(folder);
  if ((await versionOf(goPath)) === undefined) {
    throw new Problem(`The Go toolchain in ${root} does not run: remove ${GOMODCACHE} and try again`);
  }
}

async function makeExecutable(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) await chmod(path.join(entry.parentPath, entry.name), 0o755);
  }
}
