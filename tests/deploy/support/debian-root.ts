// A bare Debian with the packages that ours depends on, in which a test can install ours. Each test gets a layer of its
// own over the files in the cache.
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { buildMirrors } from '@sandbar/host-agent/images/archive.ts';
import { cacheKey, ensureArtifact } from '@sandbar/host-agent/images/cache.ts';
import { run, type Said } from '../../packages/support/run.ts';
import { CACHE } from './checkout.ts';

/** The oldest Debian that the package supports. */
const SUITE = 'bookworm';
/** Change this date to test with newer packages of the suite. */
const REVISION = '2026-11-23';

/** A mount namespace and a pid namespace of its own. Mounts and processes vanish with the first process. */
const CONFINED = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc'];

/** Arguments: the files below, the folder of the layer, the shell script. The CLI keeps a cache in the home of its caller. */
const ENTER = `
set -eu
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" sandbar "$2/root"
mount -t proc proc "$2/root/proc"
exec chroot "$2/root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
  HOME=/tmp DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 /bin/sh -euc "$3"
`;

export type DebianRoot = {
  /** Runs a shell script as root in the Debian. Nothing that it starts stays. */
  run(script: string): Promise<Said>;
  /** The folder that becomes the root, for files that a test puts there between two runs. */
  files: string;
  remove(): Promise<void>;
};

/** `packages`: names of Debian packages to install. */
export async function makeDebianRoot(packages: readonly string[]): Promise<DebianRoot> {
  const { folder: below } = await ensureArtifact(
    path.join(CACHE, 'debian-root'),
    cacheKey(SUITE, REVISION, packages, 1),
    (temporary) => bootstrap(path.join(temporary, 'root'), packages),
  );
  const layer = await mkdtemp(path.join(tmpdir(), 'sandbar-debian-'));
  const files = path.join(layer, 'upper');
  for (const name of ['upper', 'work', 'root']) await mkdir(path.join(layer, name));
  return {
    files,
    run: (script) => {
      const arguments_ = [path.join(below, 'root'), layer, script];
      return run('unshare', [...CONFINED, '--', '/bin/sh', '-c', ENTER, 'sandbar', ...arguments_], { cwd: '/' });
    },
    remove: () => rm(layer, { recursive: true, force: true }),
  };
}

async function bootstrap(root: string, packages: readonly string[]): Promise<void> {
  const { mirror } = buildMirrors(process.env);
  const options = ['--quiet', '--variant=minbase', `--include=${packages.join(',')}`, '--format=directory'];
  const args = [...CONFINED, '--', 'mmdebstrap', ...options, SUITE, root, mirror];
  const { code, stderr } = await run('unshare', args, { cwd: '/' });
  if (code !== 0) throw new Error(`mmdebstrap failed: ${stderr.slice(-2000)}`);
}
