// The tool of the conformance test, in a Python environment of its own: in the cache, keyed by the versions that go into
// it, and renamed into place complete. Only for tests; the service itself needs no Python.
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { cacheKey, ensureArtifact } from '@sandbar/host-agent/images/cache.ts';
import type { ServiceConfig } from '@sandbar/service/config.ts';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import type { Progress, Say } from '@sandbar/service/progress.ts';
import { installPackages } from '@sandbar/service/setup/system-packages.ts';

const execute = promisify(execFile);

/** In the order tried. schemathesis needs Python 3.11; Ubuntu 22.04 calls 3.10 `python3` and has a newer one beside it. */
const PYTHONS = [
  { program: 'python3', package: 'python3-venv' },
  { program: 'python3.11', package: 'python3.11-venv' },
] as const;
/** Says the version, and fails where the distribution left `venv` or `ensurepip` out. */
const PROBE = 'import sys, venv, ensurepip; print(*sys.version_info[:2])';

/** The Python of an environment in which `-m schemathesis.cli` runs. Throws Problem. */
export async function ensureSchemathesis(
  { checkout, cacheDir, isRoot }: ServiceConfig,
  progress: Progress,
  say: Say,
): Promise<string> {
  const requirements = path.join(checkout, 'tests', 'conformance', 'requirements.txt');
  const python = await ensurePython(isRoot, progress);
  const key = cacheKey(await readFile(requirements, 'utf8'), python.version);
  const { folder } = await ensureArtifact(
    path.join(cacheDir, 'schemathesis'),
    key,
    async (temporary) => {
      say('installing schemathesis');
      await install(python.program, requirements, path.join(temporary, 'venv'));
    },
    [path.join('venv', 'bin', 'python')],
  );
  return path.join(folder, 'venv', 'bin', 'python');
}

type Python = { program: string; version: string };

async function ensurePython(isRoot: boolean, progress: Progress): Promise<Python> {
  for (const { program, package: name } of PYTHONS) {
    let version = await versionOf(program);
    if (version === undefined) {
      await installPackages([name], isRoot, progress);
      version = await versionOf(program);
    }
    if (version !== undefined && isNewEnough(version)) return { program, version };
  }
  throw new Problem('The conformance test needs Python 3.11 or newer with venv: install it as python3');
}

/** Such as `3 11`; undefined where there is none or it cannot make environments. */
async function versionOf(program: string): Promise<string | undefined> {
  const output = await execute(program, ['-c', PROBE]).catch(() => undefined);
  return output?.stdout.trim();
}

function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split(' ').map(Number);
  return major === 3 && minor >= 11;
}

async function install(python: string, requirements: string, folder: string): Promise<void> {
  try {
    await execute(python, ['-m', 'venv', folder]);
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-cache-dir', '--no-deps'];
    await execute(path.join(folder, 'bin', 'python'), [...pip, '--requirement', requirements]);
  } catch (error) {
    throw new Problem(`Cannot install schemathesis for the conformance test: check the network.\n${messageOf(error)}`);
  }
}
