// Tests the container image of the control plane: what it says about itself, and that its program runs without root in
// nothing but its own files.
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { run } from '../packages/support/run.ts';
import { builtImage } from './support/built.ts';
import { CACHE, CHECKOUT, IS_ROOT } from './support/checkout.ts';

const skip = IS_ROOT ? false : 'only root can build and unpack the image';
type Config = { process: { args: string[]; env: string[]; user: { uid: number; gid: number } } };

describe('the image of the control plane', { skip }, () => {
  let archive = '';
  let folder = '';
  let root = '';
  let config: Config;
  let version = '';

  before(async () => {
    ({ version } = JSON.parse(await readFile(path.join(CHECKOUT, 'package.json'), 'utf8')) as { version: string });
    archive = await builtImage();
    folder = await mkdtemp(path.join(CACHE, 'image-test-'));
    const layout = path.join(folder, 'layout');
    await done('mkdir', layout);
    await done('tar', '-xf', archive, '-C', layout);
    await done('umoci', 'unpack', '--image', `${layout}:${version}`, path.join(folder, 'bundle'));
    root = path.join(folder, 'bundle', 'rootfs');
    config = JSON.parse(await readFile(path.join(folder, 'bundle', 'config.json'), 'utf8')) as Config;
  });
  after(() => rm(folder, { recursive: true, force: true }));

  async function done(program: string, ...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(program, args, { cwd: CACHE });
    assert.equal(code, 0, `${program}: ${stderr}`);
    return stdout;
  }

  /** Runs a command as the image's user with the image's environment and root folder. */
  const inside = (command: readonly string[], ...settings: string[]) => {
    const { uid, gid } = config.process.user;
    const env = ['/usr/bin/env', '-i', ...config.process.env, ...settings];
    return run(env[0] ?? '', [...env.slice(1), '/usr/sbin/chroot', `--userspec=${uid}:${gid}`, root, ...command], {
      cwd: '/',
    });
  };

  it('is one that other tools can read, with labels', async () => {
    const image = JSON.parse(await done('skopeo', 'inspect', `oci-archive:${archive}`)) as {
      Labels: Record<string, string>;
      Architecture: string;
      Os: string;
    };
    assert.deepEqual([image.Os, image.Architecture], ['linux', 'amd64']);
    assert.equal(image.Labels['org.opencontainers.image.version'], version);
    assert.equal(image.Labels['org.opencontainers.image.title'], 'sandbar-control-plane');
  });

  it('runs as a user that is not root and owns only its home', async () => {
    assert.deepEqual(config.process.user, { uid: 65_532, gid: 65_532 });
    const owned = await done('find', root, '-user', '65532', '-printf', '/%P\\n');
    assert.equal(owned, '/var/lib/sandbar\n');
    assert.equal((await stat(path.join(root, 'var/lib/sandbar'))).mode & 0o777, 0o700);
    assert.equal(await done('find', root, '-perm', '/6000'), '');
  });

  it('has no shell and no package manager', async () => {
    const folders = await readdir(path.join(root, 'usr'));
    assert.deepEqual(folders.sort(), ['bin', 'lib', 'lib64']);
    const programs = await readdir(path.join(root, 'usr/bin'));
    assert.deepEqual(programs.sort(), ['node', 'sandbar']);
  });

  it('starts the control plane, which says which setting is missing', async () => {
    const { code, stderr } = await inside(config.process.args);
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar control plane: SANDBAR_DATABASE_URL is required/);
  });

  it('gets as far as its database, with its secret from a file', async () => {
    const { code, stderr } = await inside(
      config.process.args,
      'SANDBAR_DATABASE_URL=postgres://sandbar@127.0.0.1:1/sandbar',
      'SANDBAR_SECRET=0123456789012345678901234567890123456789',
    );
    assert.equal(code, 1);
    assert.match(stderr, /The database of SANDBAR_DATABASE_URL does not answer/);
  });

  it('has the command line for the operator', async () => {
    const { code, stdout } = await inside(['/usr/bin/sandbar', '--version']);
    assert.deepEqual([code, stdout.trim()], [0, version]);
  });
});
