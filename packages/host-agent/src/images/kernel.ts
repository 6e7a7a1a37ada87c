/**
 * Fetches Debian's kernel, unchanged. apt downloads the package (run by mmdebstrap with an empty chroot), so its
 * signature is checked against the recipe's keys, whatever distribution the host runs.
 */
import { existsSync } from 'node:fs';
import { open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runBuildCommand } from './build-command.ts';
import { cacheKey, ensureArtifact, hashFile } from './cache.ts';
import { ImageError } from './image-error.ts';
import { bootstrap } from './mmdebstrap.ts';
import type { Progress } from './progress.ts';
import type { KernelRecipe } from './recipe.ts';
import { extractVmlinux } from './vmlinux.ts';

const VERSION = 1;

/** Shell script that finds the package behind the kernel's meta package and writes it to descriptor 3. */
const DOWNLOAD_HOOK = `set -eu
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
cd "$1"
package=$(apt-cache depends --important "$SANDBAR_KERNEL" | sed -n 's/^ *Depends: \\(linux-image-[0-9].*\\)/\\1/p')
apt-get -qq -o APT::Sandbox::User=root download "$package" >&2
cat ./*.deb >&3
rm ./*.deb
`;

export interface KernelArtifact {
  key: string;
  path: string;
  version: string;
  sha256: string;
  /** Contains `lib/modules/<version>` with the indexes that depmod wrote. */
  modulesRoot: string;
}

interface KernelFacts {
  file: string;
  version: string;
  sha256: string;
}

/**
 * Returns the kernel in `<cacheDir>/kernel/<key>/`. When it is missing, downloads and unpacks the newest kernel of the
 * recipe's suite. A new value of `refresh` forces a new download. Throws ImageError.
 */
export async function ensureKernel(
  cacheDir: string,
  recipe: KernelRecipe,
  refresh: string,
  env: NodeJS.ProcessEnv,
  log: Progress,
): Promise<KernelArtifact> {
  const { bootModules: _, excludedModules: __, ...inputs } = recipe;
  const key = cacheKey('kernel', VERSION, refresh, inputs);
  const { folder } = await ensureArtifact(
    path.join(cacheDir, 'kernel'),
    key,
    async (temporary) => {
      log(`fetching ${recipe.package} of Debian ${recipe.suite}`);
      const packageFile = path.join(temporary, 'kernel.deb');
      await downloadKernel(recipe, env, packageFile);
      log('unpacking the kernel');
      await unpackKernel(packageFile, temporary);
    },
    ['kernel.json'],
  );
  return readKernel(folder);
}

/** Returns the kernel that {@link ensureKernel} left in a folder. Throws ImageError when the file is missing. */
export async function readKernel(folder: string): Promise<KernelArtifact> {
  const text = await readFile(path.join(folder, 'kernel.json'), 'utf8').catch(() => '{"file":"kernel.json"}');
  const facts: KernelFacts = JSON.parse(text);
  const image = path.join(folder, facts.file);
  if (!existsSync(image)) throw new ImageError(`The kernel ${image} is missing: remove ${folder} and try again`);
  return { key: path.basename(folder), ...facts, path: image, modulesRoot: folder };
}

async function downloadKernel(recipe: KernelRecipe, env: NodeJS.ProcessEnv, packageFile: string): Promise<void> {
  const file = await open(packageFile, 'w');
  try {
    await bootstrap({
      recipe,
      options: ['--variant=custom'],
      customizeHook: DOWNLOAD_HOOK,
      descriptors: [file.fd],
      temporaryFolder: path.dirname(packageFile),
      env: { ...env, SANDBAR_KERNEL: recipe.package },
    });
  } finally {
    await file.close();
  }
}

async function unpackKernel(packageFile: string, folder: string): Promise<void> {
  const unpacked = path.join(folder, 'package');
  await runBuildCommand({ command: 'dpkg-deb', args: ['--extract', packageFile, unpacked] });
  const version = (await readdir(path.join(unpacked, 'boot')))
    .find((name) => name.startsWith('vmlinuz-'))
    ?.slice('vmlinuz-'.length);
  if (version === undefined)
    throw new ImageError(`The kernel package ${packageFile} holds no kernel; check the recipe`);

  await rename(path.join(unpacked, 'usr', 'lib'), path.join(folder, 'lib')).catch(() =>
    rename(path.join(unpacked, 'lib'), path.join(folder, 'lib')),
  );
  await runBuildCommand({ command: 'depmod', args: ['--basedir', folder, version] });

  const bzImage = await readFile(path.join(unpacked, 'boot', `vmlinuz-${version}`));
  const vmlinux = await extractVmlinux(bzImage);
  const file = vmlinux === undefined ? 'bzImage' : 'vmlinux';
  await writeFile(path.join(folder, file), vmlinux ?? bzImage);
  const facts: KernelFacts = { file, version, sha256: await hashFile(path.join(folder, file)) };
  await writeFile(path.join(folder, 'kernel.json'), `${JSON.stringify(facts)}\n`);
  await rm(unpacked, { recursive: true });
  await rm(packageFile);
}
