// A Python environment with the dependencies of the Python SDK, for tests that run programs with the SDK of the
// checkout. It stays in the cache. When pyproject.toml of the SDK or the Python version changes, a new one is made.
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { defaultCache } from '@sandbar/contract/home.ts';
import { cacheKey, ensureArtifact } from '@sandbar/host-agent/images/cache.ts';

const execute = promisify(execFile);

/** A Python program that prints the SDK's dependencies, one per line. It needs Python 3.11 for `tomllib`. */
const LIST = `
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
extras = [name for names in project.get("optional-dependencies", {}).values() for name in names]
print(*project["dependencies"], *extras, sep="\\n")`;

/** Resolves with the path of a Python that has all dependencies of the SDK in the folder `sdk`. */
export async function ensurePythonEnvironment(sdk: string): Promise<string> {
  const project = path.join(sdk, 'pyproject.toml');
  const { stdout: version } = await execute('python3', ['--version']);
  const { folder } = await ensureArtifact(
    path.join(defaultCache(process.env, process.getuid?.() === 0), 'sdk-python'),
    cacheKey(await readFile(project, 'utf8'), version),
    async (temporary) => {
      const { stdout } = await execute('python3', ['-c', LIST, project]);
      const venv = path.join(temporary, 'venv');
      await execute('python3', ['-m', 'venv', venv]);
      const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
      await execute(path.join(venv, 'bin/python'), [...pip, ...stdout.trim().split('\n')]);
    },
    [path.join('venv', 'bin', 'python')],
  );
  return path.join(folder, 'venv/bin/python');
}
