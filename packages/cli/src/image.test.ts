// Tests the command line of `sandbar image`. Other tests build and import real images.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

const CLI = new URL('../bin/sandbar.mjs', import.meta.url).pathname;

describe('sandbar image', () => {
  let cache: string;
  before(() => {
    cache = mkdtempSync(join(tmpdir(), 'cli-image-'));
  });
  after(() => rmSync(cache, { recursive: true }));

  const image = (...args: string[]) => {
    const env = { ...process.env, SANDBAR_CACHE: cache, SANDBAR_BASE_URL: 'http://127.0.0.1:1', SANDBAR_API_KEY: 'k' };
    const { status, stdout, stderr } = spawnSync(process.execPath, [CLI, 'image', ...args], { env, encoding: 'utf8' });
    return { status, stdout, stderr };
  };

  const misused: [string[], RegExp][] = [
    [['paint'], /unknown command 'paint'/],
    [['imprt', 'a', 'b'], /Did you mean import\?/],
    [['build'], /missing required argument 'name'/],
    [['build', 'a', 'b'], /too many arguments/],
    [['import', 'a'], /missing required argument 'reference'.*sandbar image import --help/],
    [['import', 'a', 'b', '--max-gb', 'much'], /--max-gb .* must be a whole number/],
    [['import', 'a', 'b', '--secure'], /--secure' \(Did you mean --insecure\?\)/],
  ];
  for (const [args, says] of misused) {
    it(`${args.join(' ')} prints one line and exits with 2`, () => {
      const { status, stdout, stderr } = image(...args);
      assert.deepEqual([status, stdout], [2, '']);
      assert.match(stderr, says);
      assert.equal(stderr.trim().split('\n').length, 1);
    });
  }

  const refused: [string[], RegExp][] = [
    [['build', 'pyhton'], /There is no recipe "pyhton" .* only base, node, python/],
    [['import', 'base', 'alpine'], /The image "base" is what every host has/],
    [['import', '../x', 'alpine'], /cannot be the name of an image/],
    [['import', 'x', 'dir:/x'], /"dir:\/x" names no image: write docker:\/\//],
    [['import', 'x', 'oci:/nowhere'], /\/nowhere is not an OCI layout/],
  ];
  for (const [args, says] of refused) {
    it(`${args.join(' ')} prints one line and exits with 1`, () => {
      const { status, stderr } = image(...args);
      assert.equal(status, 1, stderr);
      assert.match(stderr, says);
      assert.equal(stderr.trim().split('\n').length, 1);
    });
  }

  it('--help shows all forms of an image reference', () => {
    const { status, stdout } = image('import', '--help');
    assert.equal(status, 0);
    for (const form of ['docker://HOST/NAME:TAG', 'oci:DIR[:TAG]', 'docker-archive:FILE', '--max-gb', '--insecure']) {
      assert.ok(stdout.includes(form), form);
    }
  });
});
