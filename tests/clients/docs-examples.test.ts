// Runs every example of the README and of docs/ with the service and real machines, as a reader would.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createAccount, destroyMachines, type TestAccount } from '../e2e/support/accounts.ts';
import { PATIENCE } from '../e2e/support/service.ts';
import { CHECKOUT, type Example, type Language, pages, readExamples } from './support/doc-examples.ts';
import { ensurePythonEnvironment } from './support/python-environment.ts';

const RESULTS = path.join(CHECKOUT, 'test-results');
const TSC = path.join(CHECKOUT, 'node_modules/.bin/tsc');
const CLI = path.join(CHECKOUT, 'packages/cli/bin/sandbar.mjs');
const PYTHON_SDK = path.join(CHECKOUT, 'sdk-python');
const ENVIRONMENT = { PYTHONPATH: path.join(PYTHON_SDK, 'src'), PYTHONDONTWRITEBYTECODE: '1' };
/** The time limit of one example, ms. */
const LIMIT_MS = 120_000 * PATIENCE;

const read = pages().map(readExamples);
const examples = read.flatMap((page) => page.examples);

/** A folder inside the checkout, so that TypeScript and Node find the packages of the checkout. */
let folder = '';
let python = '';

const fileOf = ({ page, language }: Example) => path.join(folder, `${page.replaceAll('/', '-')}.${language}`);

before(async () => {
  await mkdir(RESULTS, { recursive: true });
  folder = await mkdtemp(path.join(RESULTS, 'docs-examples-'));
  await mkdir(path.join(folder, 'bin'));
  await symlink(CLI, path.join(folder, 'bin/sandbar'));
  await symlink(process.execPath, path.join(folder, 'bin/node'));
  for (const example of examples) await writeFile(fileOf(example), example.text);
  python = await ensurePythonEnvironment(PYTHON_SDK);
});

after(() => rm(folder, { recursive: true, force: true }));

type Ended = { code: number | null; output: string };

/** Runs a program in its own folder. `more`: further variables, which replace those of this process. */
async function run(name: string, program: string, args: string[], more: NodeJS.ProcessEnv = {}): Promise<Ended> {
  const cwd = path.join(folder, `in-${name}`);
  await mkdir(cwd);
  const child = spawn(program, args, {
    cwd,
    timeout: LIMIT_MS,
    env: { ...process.env, ...ENVIRONMENT, ...more, XDG_CONFIG_HOME: cwd, PATH: `${folder}/bin:${process.env.PATH}` },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, output }));
  });
}

const COMMANDS: Record<Language, (file: string) => [program: string, args: string[]]> = {
  ts: (file) => [process.execPath, ['--disable-warning=ExperimentalWarning', file]],
  py: (file) => [python, [file]],
  sh: (file) => ['bash', ['-eu', '-o', 'pipefail', file]],
};

/** Runs an example in its own account, because several examples run at the same time and use the same names. */
async function runExample(example: Example, account: TestAccount): Promise<void> {
  const [program, args] = COMMANDS[example.language](fileOf(example));
  const key = { SANDBAR_API_KEY: account.api_key };
  const { code, output } = await run(path.basename(fileOf(example)), program, args, key);
  assert.equal(code, 0, `${example.page} (${example.language}) ended with ${code}:\n${output}`);
  for (const expected of example.prints) {
    assert.ok(output.includes(expected), `${example.page} does not print "${expected}" but:\n${output}`);
  }
}

describe('examples of the documents', () => {
  it('every code block runs, or says why it cannot', () => {
    assert.ok(examples.length > 0);
    assert.deepEqual(
      read.flatMap(({ problems }) => problems),
      [],
    );
  });

  it('the TypeScript examples have no type errors', async () => {
    const files = examples.filter(({ language }) => language === 'ts').map(fileOf);
    const config = {
      extends: path.join(CHECKOUT, 'tsconfig.json'),
      compilerOptions: { lib: ['es2024', 'esnext.disposable'], moduleDetection: 'force' },
      files,
      include: [],
    };
    const project = path.join(folder, 'tsconfig.json');
    await writeFile(project, JSON.stringify(config));
    const { code, output } = await run('tsc', TSC, ['--noEmit', '-p', project]);
    assert.equal(code, 0, output);
  });

  describe('on real machines', { concurrency: 3 }, () => {
    for (const example of examples) {
      it(`${example.page}: ${example.language}`, async () => {
        const account = await createAccount();
        // An example that fails half-way does not destroy its machines, so destroy them here.
        await runExample(example, account).finally(() => destroyMachines(account));
      });
    }
  });
});
