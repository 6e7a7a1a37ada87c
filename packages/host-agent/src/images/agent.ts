/**
 * Builds the guest agent. The binary is static, because the initramfs contains no libraries and the agent must work
 * with every image.
 */
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { runBuildCommand } from './build-command.ts';
import { cacheKey, ensureArtifact, hashFile, hashFolder } from './cache.ts';
import type { Progress } from './progress.ts';

const VERSION = 3;

/**
 * Settings of Go's runtime, which the linker puts into the binary.
 * - asyncpreemptoff: Go sends a signal to interrupt a goroutine that runs for 10 ms. Emulated guests run first-time code
 *   so slowly that this happened in every create, for nothing: no goroutine of the agent loops for long without a function
 *   call, and at a call Go can switch without a signal.
 * - gcshrinkstackoff: the goroutines that serve calls and jobs keep their large stacks (guest-agent/internal/workers).
 * - The others are what `go 1.24` in go.mod means to the runtime, because this list replaces Go's own: without them, Go
 *   would look again and again how many processors it may use, and give names to its mappings.
 */
const GO_SETTINGS = 'asyncpreemptoff=1,gcshrinkstackoff=1,containermaxprocs=0,updatemaxprocs=0,decoratemappings=0';

/** Either the sources with the path of the go executable, or a finished binary. */
export type AgentSource = { sourceDir: string; goPath: string } | { binaryPath: string };

export interface AgentArtifact {
  key: string;
  path: string;
}

/**
 * Returns `<cacheDir>/agent/<key>/init`: the agent built from its sources, or a copy of the given binary. Throws
 * ImageError.
 */
export async function ensureAgent(cacheDir: string, source: AgentSource, log: Progress): Promise<AgentArtifact> {
  const parent = path.join(cacheDir, 'agent');
  if ('binaryPath' in source) {
    const key = cacheKey('agent', VERSION, await hashFile(source.binaryPath));
    const { folder } = await ensureArtifact(parent, key, (temporary) =>
      copyFile(source.binaryPath, path.join(temporary, 'init')),
    );
    return { key, path: path.join(folder, 'init') };
  }

  const key = cacheKey('agent', VERSION, await hashFolder(source.sourceDir, isBuildInput));
  const { folder } = await ensureArtifact(
    parent,
    key,
    async (temporary) => {
      log('building the guest agent');
      await compileAgent(source, key, goEnvironment(cacheDir), path.join(temporary, 'init'));
    },
    ['init'],
  );
  return { key, path: path.join(folder, 'init') };
}

/**
 * The environment for every `go` command that we run. Go keeps its files in our cache, so it needs no home directory
 * and disappears with the cache. GOTOOLCHAIN `auto` lets an older Go download the version that go.mod requires.
 */
export function goEnvironment(cacheDir: string) {
  return {
    GOPATH: path.join(cacheDir, 'go'),
    GOCACHE: path.join(cacheDir, 'go', 'build'),
    GOMODCACHE: path.join(cacheDir, 'go', 'modules'),
    // The agent's version is a hash of its sources. Adding git's revision would make the binary differ between
    // checkouts.
    GOFLAGS: '-buildvcs=false -modcacherw',
    GOTOOLCHAIN: 'auto',
  };
}

function isBuildInput(name: string): boolean {
  return !name.endsWith('_test.go') && !name.split('/').some((part) => part.startsWith('.') || part === 'testdata');
}

async function compileAgent(
  source: { sourceDir: string; goPath: string },
  version: string,
  env: NodeJS.ProcessEnv,
  output: string,
): Promise<void> {
  const flags = `-s -w -X main.version=${version} -X runtime.godebugDefault=${GO_SETTINGS}`;
  await runBuildCommand({
    command: source.goPath,
    args: ['build', '-trimpath', '-ldflags', flags, '-o', output, '.'],
    cwd: source.sourceDir,
    env: { ...env, CGO_ENABLED: '0', GOOS: 'linux', GOARCH: 'amd64' },
  });
}
