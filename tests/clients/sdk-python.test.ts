// Tests the Python SDK with the running service: runs its live tests, then builds, checks and installs its package as a
// user would.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import type { Image } from '@sandbar/contract/image.ts';
import { API_KEY, BASE_URL, expectStatus, until } from '../e2e/support/service.ts';

const execute = promisify(execFile);
const CLI = path.resolve(import.meta.dirname, '../../packages/cli/bin/sandbar.mjs');
const SDK = path.resolve(import.meta.dirname, '../../sdk-python');
/** The package is tested with each of these Pythons that this computer has, and with the Python that runs the tests. */
const PYTHONS = ['python3.10', 'python3.11', 'python3.12', 'python3.13', 'python3.14'];
const EXAMPLE = `
import sandbar
with sandbar.Sandbox.create(memory_mb=256, rootfs_size_gb=2) as sandbox:
    result = sandbox.exec("echo $((6*7))")
    print(sandbar.__version__, result.exit_code, result.stdout.strip())
`;

function pythonOfTests(): string {
  const python = process.env.SANDBAR_TEST_PYTHON;
  if (!python) throw new Error('SANDBAR_TEST_PYTHON is not set: run this test through npm test');
  return python;
}

/** Resolves with the Python of the tests and the other versions on this computer. Reports the missing versions. */
async function pythonsToTry(python: string, t: TestContext): Promise<string[]> {
  const versionOf = (program: string) =>
    execute(program, ['-c', 'import sys, venv; print(*sys.version_info[:2], sep=".")']).then(
      ({ stdout }) => `python${stdout.trim()}`,
      () => undefined,
    );
  const ofTests = await versionOf(python);
  const others: string[] = [];
  for (const name of PYTHONS.filter((one) => one !== ofTests)) {
    if ((await versionOf(name)) === name) others.push(name);
    else t.diagnostic(`${name} is not on this computer, so the package was not tried with it`);
  }
  return [python, ...others];
}

/** Runs a program and resolves with its standard output. When the program fails, the error has its output. */
async function run(program: string, args: string[], cwd = SDK): Promise<string> {
  const env = { ...process.env, SANDBAR_BASE_URL: BASE_URL, SANDBAR_API_KEY: API_KEY, PYTHONDONTWRITEBYTECODE: '1' };
  try {
    return (await execute(program, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 })).stdout;
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${program} ${args.join(' ')} failed:\n${stdout.slice(-20_000)}${stderr.slice(-5000)}`);
  }
}

// The tests run at the same time, because tests with real machines spend most of their time waiting.
describe('the Python SDK', { concurrency: true }, () => {
  const python = pythonOfTests();
  let folder: string;
  before(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'sdk-python-'));
  });
  after(() => rmSync(folder, { recursive: true }));

  it('passes its live tests', async () => {
    // The example of the README uses this image. The build does nothing when the image exists already.
    await run(process.execPath, [CLI, 'image', 'build', 'python']);
    await until('the image is listed', async () => {
      const { images } = await expectStatus<{ images: Image[] }>(200, 'GET', '/v1/images');
      return images.some(({ stack }) => stack === 'python');
    });
    const output = await run(python, ['-m', 'pytest', '-q', '-m', 'live', '--tb=short']);
    assert.match(output, /\d+ passed/);
    assert.doesNotMatch(output, /skipped/);
  });

  it('builds a correct package, and runs an example in an environment that has only this package', async (t) => {
    const dist = path.join(folder, 'dist');
    await run(python, ['-m', 'build', '--no-isolation', '--outdir', dist]);
    const files = readdirSync(dist).map((name) => path.join(dist, name));
    const wheel = files.find((file) => file.endsWith('.whl')) ?? assert.fail(`no wheel in ${files.join(', ')}`);
    assert.equal(files.length, 2);
    await run(python, ['-m', 'twine', 'check', '--strict', ...files]);
    const example = path.join(folder, 'example.py');
    writeFileSync(example, EXAMPLE);
    for (const program of await pythonsToTry(python, t)) {
      const empty = path.join(folder, `venv-${path.basename(program)}`);
      await run(program, ['-m', 'venv', '--without-pip', empty], folder);
      await run(python, ['-m', 'pip', '--python', empty, 'install', '--quiet', '--disable-pip-version-check', wheel]);
      const installed = path.join(empty, 'bin', 'python');
      assert.match(await run(installed, ['-W', 'error', example], folder), /^\d+\.\d+\.\d+ 0 42\n$/);
    }
  });
});
