// Makes Python environments for tests that need Python packages. An environment stays in the cache, under a key made
// from the versions of Python and of its packages. The service itself needs no Python.
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

/**
 * The Python programs to try, in this order. schemathesis and datamodel-code-generator need Python 3.11 or newer. On
 * Ubuntu 22.04 `python3` is 3.10, and 3.11 is a separate package.
 */
const PYTHONS = [
  { program: 'python3', package: 'python3-venv' },
  { program: 'python3.11', package: 'python3.11-venv' },
] as const;
/**
 * A Python program that prints the version. It fails where `venv` or `ensurepip` is in a separate package that is not
 * installed.
 */
const PROBE = 'import sys, venv, ensurepip; print(*sys.version_info[:2])';

export type PythonEnvironment = {
  /** The name of the environment: of its folder in the cache, and in messages. */
  name: string;
  /** The file with its packages, relative to the checkout. It pins every package, including indirect dependencies. */
  requirements: string;
};

/**
 * Makes the environment unless the cache has it. Resolves with the path of its Python. Throws Problem when there is no
 * suitable Python or the packages cannot be installed.
 */
export async function ensurePythonEnvironment(
  { checkout, cacheDir, isRoot }: ServiceConfig,
  { name, requirements }: PythonEnvironment,
  progress: Progress,
  say: Say,
): Promise<string> {
  const file = path.join(checkout, requirements);
  const python = await ensurePython(isRoot, progress);
  const key = cacheKey(await readFile(file, 'utf8'), python.version);
  const { folder } = await ensureArtifact(
    path.join(cacheDir, name),
    key,
    async (temporary) => {
      say(`installing the packages of ${requirements}`);
      await install(python.program, file, path.join(temporary, 'venv'));
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
  throw new Problem('These tests need Python 3.11 or newer with venv: install it as python3');
}

/**
 * Returns the version of this Python interpreter, such as `3 11`. Returns undefined when it is not installed or lacks the
 * modules for virtual environments.
 */
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
    throw new Problem(`Cannot install the Python packages of ${requirements}: check the network.\n${messageOf(error)}`);
  }
}
