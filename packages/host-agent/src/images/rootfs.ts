/**
 * Builds the disk of an image. mmdebstrap makes the chroot, and its last hook turns the chroot into a file system
 * within the same user namespace. So all file owners are right with and without root, and nothing is mounted from a
 * loop device.
 */
import { copyFile, cp, mkdir, open, readFile, rm, stat, statfs, truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { aptSources, securityMirrorOf } from './archive.ts';
import { runBuildCommand } from './build-command.ts';
import { cacheKey, ensureArtifact, hashFile, hashFolder } from './cache.ts';
import { hasErrorCode, ImageError } from './image-error.ts';
import type { KernelArtifact } from './kernel.ts';
import { bootstrap } from './mmdebstrap.ts';
import type { Progress } from './progress.ts';
import type { ImageRecipe } from './recipe.ts';

const VERSION = 3;
const FINISH_SCRIPT = path.join(import.meta.dirname, 'finish-rootfs.sh');
/** Where Debian 13 keeps its own keys. The package sources of the finished image refer to this file. */
const IMAGE_KEYRING = '/usr/share/keyrings/debian-archive-keyring.pgp';

/**
 * Space that a build needs. The packages, chroot and disk of our recipes take 0.7 GB together; other recipes may take
 * more.
 */
const NEEDED_BYTES = 1.5 * 2 ** 30;

/**
 * Excludes documentation that nobody reads in a sandbox, but keeps licences. dpkg applies this also to packages that
 * users install.
 */
const DPKG_OPTIONS = [
  ...['doc', 'man', 'info', 'locale', 'lintian', 'linda', 'groff'].map((name) => `path-exclude=/usr/share/${name}/*`),
  'path-include=/usr/share/doc/*/copyright',
  'path-include=/usr/share/locale/locale.alias',
];

export interface RootfsArtifact {
  key: string;
  path: string;
  /** Apparent size in bytes; the file is sparse. */
  bytes: number;
  sha256: string;
}

/** Matches the lines of mmdebstrap's output that report progress. */
const STEP = /^I: (running apt-get update|downloading|extracting|installing)/;

/**
 * Returns `<cacheDir>/rootfs/<key>/rootfs.img`, and builds it when it is missing: a raw ext4 file system of the
 * recipe's size. Throws ImageError.
 */
export async function ensureRootfs(
  cacheDir: string,
  recipe: ImageRecipe,
  kernel: KernelArtifact,
  excludedModules: readonly string[],
  refresh: string,
  env: NodeJS.ProcessEnv,
  log: Progress,
): Promise<RootfsArtifact> {
  const { folder: recipeFolder, parentFolder, description: _, isDefault: __, ...inputs } = recipe;
  const inherited = parentFolder === undefined ? [] : [await hashFolder(path.join(parentFolder, 'files'))];
  const own = await hashFolder(recipeFolder, isContent);
  const content = [own, await readFile(FINISH_SCRIPT, 'utf8'), DPKG_OPTIONS, ...inherited];
  const key = cacheKey('rootfs', VERSION, refresh, inputs, content, kernel.key, excludedModules);

  const { folder } = await ensureArtifact(path.join(cacheDir, 'rootfs'), key, async (temporary) => {
    await requireSpace(temporary);
    const stage = await packStage(temporary, recipe, kernel, excludedModules);
    const disk = path.join(temporary, 'rootfs.img');
    log(`installing Debian ${recipe.suite} with ${recipe.packages.length} packages`);
    await makeDisk(recipe, key, stage, disk, env, log);
    await rm(stage);
    log('checking the disk');
    await runBuildCommand({ command: 'e2fsck', args: ['-f', '-n', disk] });
    await writeFile(path.join(temporary, 'sha256'), await hashFile(disk));
  });

  const disk = path.join(folder, 'rootfs.img');
  return {
    key,
    path: disk,
    bytes: await sizeOfDisk(disk),
    sha256: await readFile(path.join(folder, 'sha256'), 'utf8'),
  };
}

/**
 * Returns the size of a disk in bytes. Throws ImageError when the file is missing. A missing disk is never rebuilt
 * automatically: packages change, and a new disk under the old name would not fit the overlays of existing machines.
 */
async function sizeOfDisk(disk: string): Promise<number> {
  return stat(disk).then(
    ({ size }) => size,
    () => {
      const remedy = `restore it, or remove ${path.dirname(disk)} and try again for a new one`;
      throw new ImageError(
        `The disk ${disk} of an image is missing: ${remedy} (machines made from it do not start again)`,
      );
    },
  );
}

function isContent(name: string): boolean {
  return name === 'customize.sh' || name.startsWith('files/');
}

/**
 * Throws ImageError when the file system of `folder` has less free space than `bytes`, before a build wastes a minute.
 */
export async function requireSpace(folder: string, bytes = NEEDED_BYTES): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= bytes) return;
  const [needed, free] = [bytes, bavail * bsize].map((bytes) => (bytes / 2 ** 30).toFixed(1));
  throw new ImageError(
    `Building an image needs ${needed} GB, and ${path.dirname(folder)} has ${free} GB: ` +
      'free some space or choose another cache folder',
  );
}

/**
 * Packs everything that is added to the chroot into one tar archive: modules, package sources, the recipe's files,
 * scripts.
 */
async function packStage(
  temporary: string,
  recipe: ImageRecipe,
  kernel: KernelArtifact,
  excludedModules: readonly string[],
): Promise<string> {
  const stage = path.join(temporary, 'stage');
  await copyModules(kernel, excludedModules, path.join(stage, 'usr'));
  const sourcesFolder = path.join(stage, 'etc', 'apt', 'sources.list.d');
  await mkdir(sourcesFolder, { recursive: true });
  const mirrors = { mirror: recipe.mirror, securityMirror: securityMirrorOf(recipe.mirror) };
  const sources = aptSources({ ...recipe, ...mirrors, signedBy: IMAGE_KEYRING });
  await writeFile(path.join(sourcesFolder, 'debian.sources'), sources);
  for (const folder of [recipe.parentFolder, recipe.folder]) {
    if (folder !== undefined) await copyIfPresent(path.join(folder, 'files'), stage);
  }

  const scripts = path.join(stage, '.sandbar-build');
  await mkdir(scripts);
  await copyFile(FINISH_SCRIPT, path.join(scripts, 'finish-rootfs.sh'));
  await copyIfPresent(path.join(recipe.folder, 'customize.sh'), path.join(scripts, 'customize.sh'));

  const archive = path.join(temporary, 'stage.tar');
  // Modes and owners in the recipe's folder depend on who checked it out, so tar sets fixed ones.
  const owners = ['--owner=0', '--group=0', '--numeric-owner', '--mode=u=rwX,go=rX'];
  await runBuildCommand({ command: 'tar', args: [...owners, '--sort=name', '-cf', archive, '-C', stage, '.'] });
  await rm(stage, { recursive: true });
  return archive;
}

/**
 * Copies the kernel's modules to `<target>/lib/modules/<version>`, without the excluded folders, and writes the
 * indexes.
 */
export async function copyModules(kernel: KernelArtifact, excluded: readonly string[], target: string): Promise<void> {
  const folder = path.join('lib', 'modules', kernel.version);
  const excludedFolders = excluded.map((name) => path.join(kernel.modulesRoot, folder, 'kernel', name));
  await cp(path.join(kernel.modulesRoot, folder), path.join(target, folder), {
    recursive: true,
    filter: (source) => !excludedFolders.includes(source),
  });
  await runBuildCommand({ command: 'depmod', args: ['--basedir', target, kernel.version] });
}

async function copyIfPresent(from: string, to: string): Promise<void> {
  await cp(from, to, { recursive: true }).catch((error: unknown) => {
    if (!hasErrorCode(error, 'ENOENT')) throw error;
  });
}

/** Makes the disk. The hook gets the disk as descriptor 3 and the archive of additional files as descriptor 4. */
async function makeDisk(
  recipe: ImageRecipe,
  key: string,
  stage: string,
  disk: string,
  env: NodeJS.ProcessEnv,
  log: Progress,
): Promise<void> {
  await writeFile(disk, '', { mode: 0o666 });
  await truncate(disk, recipe.minRootfsGb * 2 ** 30);
  const diskFile = await open(disk, 'r+');
  const stageFile = await open(stage, 'r');
  try {
    // Opening a descriptor again through /proc needs the file's permissions, and the hook may run as another user.
    await diskFile.chmod(0o666);
    await bootstrap({
      recipe,
      options: [
        ...['--variant=minbase', `--include=${recipe.packages.join(',')}`],
        // After a power cut the chroot is built again, so dpkg need not sync each file.
        '--dpkgopt=force-unsafe-io',
        ...DPKG_OPTIONS.map((option) => `--dpkgopt=${option}`),
      ],
      customizeHook: 'tar -C "$1" --no-overwrite-dir -xf - <&4 && sh "$1/.sandbar-build/finish-rootfs.sh" "$1"',
      descriptors: [diskFile.fd, stageFile.fd],
      temporaryFolder: path.dirname(disk),
      env: { ...env, SANDBAR_DISK_UUID: uuidFrom(key) },
      onLine: (line) => {
        if (STEP.test(line)) log(`  ${line.slice(3)}`);
      },
    });
    await diskFile.chmod(0o644);
  } finally {
    await diskFile.close();
    await stageFile.close();
  }
}

/** Returns a UUID derived from the key, so that equal inputs give an identical file system. */
export function uuidFrom(key: string): string {
  const hex = cacheKey('uuid', key) + cacheKey('uuid again', key);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
