// Tests the commands that need the code of the service, in a CLI that was installed without this code.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { environment, makeFolder, run } from './test-support.ts';

const packages = path.resolve(import.meta.dirname, '../../..', 'node_modules');

/** Copies the CLI to a folder with all installed packages but the service. */
function installWithoutService(): string {
  const folder = makeFolder();
  cpSync(path.resolve(import.meta.dirname, '..'), path.join(folder, 'cli'), { recursive: true });
  const modules = path.join(folder, 'node_modules');
  mkdirSync(path.join(modules, '@sandbar'), { recursive: true });
  for (const name of readdirSync(packages).filter((one) => !one.startsWith('.') && one !== '@sandbar')) {
    symlinkSync(path.join(packages, name), path.join(modules, name));
  }
  for (const name of ['contract', 'sdk']) {
    symlinkSync(path.join(packages, '@sandbar', name), path.join(modules, '@sandbar', name));
  }
  return path.join(folder, 'cli/bin/sandbar.mjs');
}

describe('a CLI that was installed without the service', () => {
  const cli = installWithoutService();

  for (const args of [
    ['up'],
    ['up', '--foreground'],
    ['down'],
    ['status', '--json'],
    ['uninstall', '--purge', '--yes'],
  ]) {
    it(`refuses ${args.join(' ')} in one line`, async () => {
      const { code, stdout, stderr } = await run(process.execPath, [cli, ...args], environment({}));
      assert.deepEqual([code, stdout.toString()], [1, '']);
      assert.match(stderr, /^sandbar: this command runs on the computer of the service: .+\n$/);
    });
  }

  it('prints the help of these commands', async () => {
    const { code, stdout } = await run(process.execPath, [cli, 'up', '--help'], environment({}));
    assert.equal(code, 0);
    assert.match(stdout.toString(), /--foreground/);
  });
});
