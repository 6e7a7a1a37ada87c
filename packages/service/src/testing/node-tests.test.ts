import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { runNodeTests } from './node-tests.ts';

describe('a run of tests', () => {
  const dir = mkdtempSync(join(tmpdir(), 'node-tests-'));
  after(() => rmSync(dir, { recursive: true }));

  async function runFile(name: string, source: string) {
    const file = join(dir, `${name}.test.mjs`);
    writeFileSync(file, `import { describe, it } from 'node:test';\n${source}`);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    let shown = '';
    const show = (text: string) => {
      shown += text;
    };
    return {
      ...(await runNodeTests(dir, [file], { env, signal: AbortSignal.timeout(30_000), isAlone: true, show })),
      shown: () => shown,
    };
  }

  it('tells at its end which test failed, and why', async () => {
    const { exitCode, summary, failures, shown } = await runFile(
      'red',
      "describe('all', () => { it('is well', () => {}); it('is ill', () => { throw new Error('the reason'); }); });",
    );
    assert.equal(exitCode, 1);
    assert.match(summary, /^ℹ tests 2$/m);
    assert.match(summary, /^ℹ fail 1$/m);
    assert.match(failures, /is ill/);
    assert.match(failures, /the reason/);
    assert.doesNotMatch(failures, /is well/);
    assert.match(shown(), /is well/);
  });

  it('has nothing to tell when all is well', async () => {
    const { exitCode, summary, failures } = await runFile('green', "it('is well', () => {});");
    assert.deepEqual([exitCode, failures], [0, '']);
    assert.match(summary, /^ℹ pass 1$/m);
  });
});
