// The second disk of the test's host: the checkout as it is now, its node modules, and the built images, so that the
// host builds and downloads nothing.
import { copyFile, cp, mkdir, truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runBuildCommand } from '@sandbar/host-agent/images/build-command.ts';
import { type LoadedImage, loadImage } from '@sandbar/host-agent/images/store.ts';

/** Sparse: the service's data directory is on it as well. */
const DISK_BYTES = 8 * 2 ** 30;
/** Tools that check the sources; a service does without. */
const LEFT_OUT = ['.git', 'node_modules/@biomejs', 'node_modules/@typescript', 'node_modules/typescript'];

export type DataDiskSource = { checkout: string; cacheDir: string; goPath: string };

/** Makes the disk in `folder` and returns its path. Throws ImageError. */
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

/** The parts of the base image's build, under the names by which another build would find them. */
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
