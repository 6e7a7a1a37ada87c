// Tests the SDK as it is published in a browser: bundled for browsers, on a page of the service, with an API key and no
// session.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { rolldown } from 'rolldown';
import { API_KEY, BASE_URL } from '../e2e/support/service.ts';
import { installPackages, type Project } from '../packages/support/project.ts';
import { withPage } from './support/browser.ts';

/** Runs in the page. The result is what the test compares. */
const PROGRAM = `(async ({ baseUrl, apiKey }) => {
  const { Client, ConfigurationError, NotFoundError, Sandbox } = sdk;
  const sandbox = await Sandbox.create({ baseUrl, apiKey, memoryMb: 256, rootfsSizeGb: 2, expiresInSec: 600 });
  try {
    const { exitCode, stdout } = await sandbox.exec('echo hello; exit 3');
    await sandbox.files.write('/root/ü.txt', 'ü in a file');
    const text = await sandbox.files.readText('/root/ü.txt');
    const job = await sandbox.start(['cat', '/root/ü.txt']);
    let output = '';
    for await (const { data } of job.output()) output += new TextDecoder().decode(data);
    const terminal = await sandbox.terminal({ command: ['sh', '-c', 'read line; echo "got $line"'] });
    await terminal.write('a line\\n');
    let screen = '';
    for await (const data of terminal) screen += new TextDecoder().decode(data);
    const refused = await sandbox.ports.connect(80).catch((error) => error instanceof ConfigurationError);
    const missing = await sandbox.files.read('/none').catch((error) => error instanceof NotFoundError);
    return { exitCode, stdout, text, output, hasLine: screen.includes('got a line'), refused, missing };
  } finally {
    await sandbox.destroy();
  }
})`;

describe('the SDK in a browser', () => {
  let project: Project;
  before(async () => {
    project = await installPackages();
  });
  after(() => project?.remove());

  it('runs commands and jobs, moves files and opens a terminal with a key', async () => {
    const input = await project.write('browser.js', "export * from '@sandbar/sdk';");
    const bundle = await rolldown({ input, cwd: project.folder, platform: 'browser' });
    const { output } = await bundle.generate({ format: 'iife', name: 'sdk' });
    await bundle.close();
    await withPage({}, async (page) => {
      await page.goto('/sign-in');
      await page.evaluate(`globalThis.sdk = (() => { ${output[0].code}; return sdk; })()`);
      const result = await page.evaluate(`${PROGRAM}(${JSON.stringify({ baseUrl: BASE_URL, apiKey: API_KEY })})`);
      assert.deepEqual(result, {
        exitCode: 3,
        stdout: 'hello\n',
        text: 'ü in a file',
        output: 'ü in a file',
        hasLine: true,
        refused: true,
        missing: true,
      });
    });
  });
});
