// Tests the test runner. Each test starts a small program that calls the runner, because node's runner cannot run
// inside one of its own tests.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe, it } from 'node:test';
import type { NodeTestResult } from './node-tests.ts';

/**
 * A program that runs the test files in a folder. Its arguments are the folder and the files. Its last line of output
 * is the result, or the error of the runner.
 */
const PROGRAM = `
import { runNodeTests } from '${join(import.meta.dirname, 'node-tests.ts')}';
const [folder, ...files] = process.argv.slice(2);
const stop = new AbortController();
process.once('SIGTERM', () => stop.abort(new Error('told to stop')));
const show = (text) => void process.stdout.write(text);
try {
  const result = await runNodeTests(folder, files, { env: process.env, signal: stop.signal, filesAtOnce: 2, show });
  console.log('\\n' + JSON.stringify({ ...result, durations: [...result.durations] }));
} catch (error) {
  console.log('\\n' + JSON.stringify({ rejected: error.message }));
}`;

type Printed = Omit<NodeTestResult, 'durations'> & { durations: [file: string, ms: number][]; rejected?: string };

describe('a run of tests', () => {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), 'node-tests-')));
  after(() => rmSync(dir, { recursive: true }));

  function start(sources: Record<string, string>) {
    for (const [name, source] of Object.entries(sources)) {
      writeFileSync(join(dir, name), `import { describe, it, after } from 'node:test';\n${source}`);
    }
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const program = join(dir, 'program.mjs');
    writeFileSync(program, PROGRAM);
    const child = spawn(process.execPath, [program, dir, ...Object.keys(sources)], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = Promise.all([text(child.stdout), once(child, 'close')]).then(([shown]) => {
      const lines = shown.trimEnd().split('\n');
      return { ...(JSON.parse(lines.pop() ?? '') as Printed), shown: lines.join('\n') };
    });
    return { child, ended };
  }
  const runFiles = (sources: Record<string, string>) => start(sources).ended;

  it('tells which test failed, in which file and why', async () => {
    const { hasPassed, summary, failures, shown } = await runFiles({
      'red.test.mjs': `describe('all', () => {
        it('is well', () => {});
        describe('some', () => {
          it('is ill', () => { throw new Error('the reason'); });
        });
        it('is to do', { todo: true }, () => { throw new Error('not yet'); });
      });`,
      'well.test.mjs': "it('is well, too', () => {});",
    });
    assert.equal(hasPassed, false);
    assert.equal(summary, '4 tests: 2 passed, 1 failed, 1 to do');
    assert.equal(failures.length, 1, failures.join('\n'));
    assert.match(failures[0] ?? '', /^✖ red\.test\.mjs:5 all > some > is ill\n {2}Error: the reason\n {6}at /);
    assert.match(shown, /is well[\s\S]*is ill/);
  });

  it('reports no failures when all tests pass, but how long each file took', async () => {
    const { hasPassed, summary, failures, durations } = await runFiles({
      'green.test.mjs': "it('is well', () => {}); describe('suite', () => it('is well', () => {}));",
      'skipped.test.mjs': "describe('suite', { skip: 'not here' }, () => it('is never run', () => {}));",
    });
    assert.deepEqual([hasPassed, failures], [true, []]);
    assert.match(summary, /^2 tests: 2 passed/);
    assert.deepEqual(durations.map(([file]) => file).sort(), ['green.test.mjs', 'skipped.test.mjs']);
    assert(durations.every(([, ms]) => ms > 0));
  });

  it('reports a file that ran no test as a failure', async () => {
    const { hasPassed, failures } = await runFiles({
      'nothing.test.mjs': '',
      'empty.test.mjs': "describe('suite', () => {});",
      'green.test.mjs': "it('is well', () => {});",
    });
    assert.equal(hasPassed, false);
    assert.deepEqual(failures, ['✖ nothing.test.mjs: the file ran no test', '✖ empty.test.mjs: the file ran no test']);
  });

  it('reports a file whose process fails, with the end of its output, even if its tests passed', async () => {
    const { hasPassed, failures } = await runFiles({
      'exit.test.mjs': "it('is well', () => {}); after(() => setImmediate(() => process.exit(3)));",
      'killed.test.mjs': "it('is killed', () => new Promise(() => process.kill(process.pid, 'SIGKILL')));",
      'broken.test.mjs': 'this is no program',
      'late.test.mjs': "it('is well', () => void setTimeout(() => Promise.reject(new Error('too late')), 20));",
    });
    assert.equal(hasPassed, false);
    assert.deepEqual(
      failures.map((failure) => failure.split('\n')[0]),
      [
        '✖ exit.test.mjs: its process ended with exit code 3',
        '✖ killed.test.mjs: its process was ended by SIGKILL',
        '✖ broken.test.mjs: its process ended with exit code 1',
        '✖ late.test.mjs: its process ended with exit code 1',
      ],
    );
    assert.match(failures[2] ?? '', /SyntaxError/);
    assert.match(failures[3] ?? '', /too late/);
  });

  it('runs two files at a time', async () => {
    const meet = (mine: string, other: string) => `
      import { existsSync, writeFileSync } from 'node:fs';
      it('meets the other', { timeout: 30_000 }, async ({ signal }) => {
        writeFileSync(import.meta.dirname + '/${mine}.here', '');
        while (!signal.aborted && !existsSync(import.meta.dirname + '/${other}.here')) await new Promise((go) => setTimeout(go, 10));
      });`;
    const { hasPassed, summary } = await runFiles({
      'one.test.mjs': meet('one', 'two'),
      'two.test.mjs': meet('two', 'one'),
    });
    assert.deepEqual([hasPassed, /^2 tests: 2 passed/.test(summary)], [true, true]);
  });

  it('an abort ends the processes and rejects', async () => {
    const { child, ended } = start({
      'endless.test.mjs':
        "it('has begun', () => {}); it('never ends', () => { console.log('endless', process.pid); return new Promise(() => setInterval(() => {}, 1000)); });",
    });
    let shown = '';
    const pid = await new Promise<number>((resolve) => {
      child.stdout.on('data', (data) => {
        shown += data;
        const said = /endless (\d+)/.exec(shown)?.[1];
        if (said !== undefined) resolve(Number(said));
      });
    });
    child.kill('SIGTERM');
    assert.equal((await ended).rejected, 'told to stop');
    for (const until = Date.now() + 30_000; isAlive(pid); await new Promise((resolve) => setTimeout(resolve, 20)))
      assert(Date.now() < until, 'the process of the test goes on');
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
