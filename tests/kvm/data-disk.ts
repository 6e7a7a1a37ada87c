// Makes the second disk of the VM in which the KVM test runs ("the host"). It has the checkout with its node modules
// and the built images, so that the host needs to build and download nothing.
import { copyFile, cp, mkdir, truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runBuildCommand } from '@sandbar/host-agent/images/build-command.ts';
import { type LoadedImage, loadImage } from '@sandbar/host-agent/images/store.ts';

/** Large, because the data directory of the service is on this disk too. The file is sparse. */
const DISK_BYTES = 8 * 2 ** 30;
/** Files that the service does not need to run: the repository and the tools that check the sources. */
const LEFT_OUT = ['.git', 'node_modules/@biomejs', 'node_modules/@typescript', 'node_modules/typescript'];

export type DataDiskSource = { checkout: string; cacheDir: string; goPath: string };

/** Makes the disk in `folder` and returns its path. Throws `ImageError`. */
export async function makeDataDisk(folder: string, source: DataDiskSource): Promise<string> {
  const stage = path.join(folder, 'data');
  const checkout = path.join(stage, 'checkout');
  const leftOut = LEFT_OUT.map((name) => path.join(source.checkout, name));
  await cp(source.checkout, checkout, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (file) => !leftOut.includes(file),
  });
  await copyImages(source.cacheDir, path.join(stage, 'cache'), await loadImage(source.cacheDir, 'base'));
  await mkdir(path.join(stage, 'go', 'bin'), { recursive: true });
  await copyFile(source.goPath, path.join(stage, 'go', 'bin', 'go'));

  const disk = path.join(folder, 'data.img');
  await writeFile(disk, '');
  await truncate(disk, DISK_BYTES);
  const args = ['-q', '-F', '-t', 'ext4', '-m', '0', '-E', 'root_owner=0:0,lazy_itable_init=1', '-d', stage, disk];
  await runBuildCommand({ command: 'mke2fs', args });
  return disk;
}

/**
 * Copies the build of the base image into another cache folder, with the same names, so that nothing is built again.
 */
async function copyImages(cacheDir: string, target: string, image: LoadedImage): Promise<void> {
  const files = [image.manifestPath, image.kernel.path, image.initramfs.path, image.rootfs.path];
  const folders = [...files.map((file) => path.dirname(file)), path.join(cacheDir, 'agent')];
  for (const folder of folders) {
    const copy = path.join(target, path.relative(cacheDir, folder));
    await mkdir(path.dirname(copy), { recursive: true });
    await runBuildCommand({ command: 'cp', args: ['-a', '--sparse=always', folder, copy] });
  }
  const current = path.join(path.dirname(path.dirname(image.manifestPath)), 'current');
  await runBuildCommand({ command: 'cp', args: ['-a', current, path.join(target, path.relative(cacheDir, current))] });
}
