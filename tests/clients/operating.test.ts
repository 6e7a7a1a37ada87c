// The commands of docs/operating.md: each that the examples of the documents do not run is run by a test, or the page says
// why by none. The tests of the back-up and of the proxy are in tests/faults.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { it } from 'node:test';
import { blocksRunBy, CHECKOUT } from './support/doc-examples.ts';

const PAGE = 'docs/operating.md';
/** Blocks that no test can run: the page says which tests show what they rely on. */
const NOT_RUN = [/They would change this checkout/];

it('each command is run by a test that exists', () => {
  const comments = readFileSync(path.join(CHECKOUT, PAGE), 'utf8').match(/^<!-- .* -->$/gm) ?? [];
  for (const comment of comments.filter((one) => !NOT_RUN.some((known) => known.test(one)))) {
    const [, test = ''] = /^<!-- (tests\/\S+\.test\.ts) runs this: /.exec(comment) ?? [];
    assert.ok(existsSync(path.join(CHECKOUT, test)) && test !== '', comment);
    const labels = [...blocksRunBy(PAGE, test).keys()];
    assert.ok(
      labels.every((label) => readFileSync(path.join(CHECKOUT, test), 'utf8').includes(`'${label}'`)),
      test,
    );
  }
  assert.ok(comments.length >= 9);
});

it('the simulation of a fleet prints what the rule does', () => {
  const command = blocksRunBy(PAGE, 'tests/clients/operating.test.ts').get('simulate a fleet') ?? assert.fail();
  // A tenth of the arrivals, so that it ends soon.
  const small = command
    .replace(/--hosts \d+ --machines \d+/, '--hosts 10 --machines 2900')
    .replace(/^node /, `${process.execPath} `);
  const printed = execFileSync('bash', ['-eu', '-c', small], { cwd: CHECKOUT, encoding: 'utf8' });
  assert.match(printed, /^\| least full of 4 \(Sandbar\) \| \d+, \d+ \|/m);
});
