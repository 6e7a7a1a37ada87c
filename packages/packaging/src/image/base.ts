// Makes the base layer of the container image. It has little more than the shared libraries of Node, from Debian, and
// no shell and no package manager.
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { aptSources, buildMirrors } from '@sandbar/host-agent/images/archive.ts';
import { runBuildCommand } from '@sandbar/host-agent/images/build-command.ts';
import { cacheKey, ensureArtifact } from '@sandbar/host-agent/images/cache.ts';
import { RECIPES } from '@sandbar/host-agent/images/recipe.ts';

const SUITE = 'trixie';
const LIBRARIES = ['libc6', 'libgcc-s1', 'libstdc++6'];
/** Change this date to build with newer packages of the suite. */
const REVISION = '2026-11-23';
const VERSION = 1;

/** The uid of the image's user. Kubernetes accepts only a number as proof that the user is not root. */
export const IMAGE_UID = 65_532;

const FILES = {
  'etc/passwd': `root:x:0:0:root:/root:/sbin/nologin\nsandbar:x:${IMAGE_UID}:${IMAGE_UID}:sandbar:/var/lib/sandbar:/sbin/nologin\n`,
  'etc/group': `root:x:0:\nsandbar:x:${IMAGE_UID}:\n`,
  'etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
  'etc/os-release': 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nNAME="Debian GNU/Linux"\nVERSION_ID="13"\nID=debian\n',
} as const;

/** Runs mmdebstrap in its own mount namespace. So its mounts vanish when it ends, even if it is killed. */
const CONFINED = ['unshare', '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc'];

/** Fills a folder with the files of the base layer. The libraries come from the cache if it has them. */
export async function addBase(cacheDir: string, target: string): Promise<void> {
  const key = cacheKey('image-base', VERSION, SUITE, LIBRARIES, REVISION);
  const { folder } = await ensureArtifact(path.join(cacheDir, 'image-base'), key, downloadLibraries);
  const left = ['./dev', './etc', './usr/share', './var'].map((name) => `--exclude=${name}`);
  await unpack(path.join(folder, 'base.tar'), target, left);
  // Debian's package base-files contains these links. Make them here, because it would also install shell tools.
  for (const name of ['bin', 'lib', 'lib64']) await symlink(`usr/${name}`, path.join(target, name));
  for (const name of ['etc', 'tmp', 'var/lib/sandbar']) await mkdir(path.join(target, name), { recursive: true });
  for (const [name, text] of Object.entries(FILES)) await writeFile(path.join(target, name), text);
  // Security scanners read the packages of an image without dpkg from this folder.
  await cp(path.join(folder, 'status.d'), path.join(target, 'var/lib/dpkg/status.d'), { recursive: true });
}

/** Fills a folder with base.tar (the files of the libraries) and status.d (the control file of each package). */
async function downloadLibraries(folder: string): Promise<void> {
  const signedBy = await readFile(path.join(RECIPES, 'keys', `${SUITE}.asc`), 'utf8');
  const sources = aptSources({ suite: SUITE, components: ['main'], ...buildMirrors(process.env), signedBy });
  const options = ['--quiet', '--variant=extract', `--include=${LIBRARIES.join(',')}`];
  // Skip the clean-up, so that the downloaded packages stay below /var/cache.
  const [command = '', ...args] = [...CONFINED, 'mmdebstrap', ...options, '--skip=cleanup/apt'];
  const tar = path.join(folder, 'base.tar');
  await runBuildCommand({ command, args: [...args, SUITE, tar, '-'], input: sources });

  const [downloads, records] = [path.join(folder, 'downloads'), path.join(folder, 'status.d')];
  for (const name of [downloads, records]) await mkdir(name);
  await unpack(tar, downloads, ['--strip-components=5', '--wildcards', './var/cache/apt/archives/*.deb']);
  for (const archive of await readdir(downloads)) {
    const control = await runBuildCommand({ command: 'dpkg-deb', args: ['-f', path.join(downloads, archive)] });
    const [name = archive] = archive.split('_');
    await writeFile(path.join(records, name), control);
  }
  await rm(downloads, { recursive: true });
}

async function unpack(tar: string, target: string, options: readonly string[]): Promise<void> {
  await runBuildCommand({ command: 'tar', args: ['-xf', tar, '-C', target, ...options] });
}
