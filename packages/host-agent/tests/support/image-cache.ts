// Makes a cache folder with a tiny fake base image, for import tests that boot nothing, and inspects the resulting
// disks.
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { publishImage } from '../../src/images/publish.ts';

const execute = promisify(execFile);
export const KERNEL_VERSION = '6.12.0-test';

/** Creates the cache folder of an image build. Small fake files replace the kernel. */
export async function writeCache(cacheDir: string): Promise<void> {
  const kernelDir = path.join(cacheDir, 'kernel', 'k1');
  const modules = path.join(kernelDir, 'lib', 'modules', KERNEL_VERSION);
  await mkdir(modules, { recursive: true });
  for (const index of ['order', 'builtin', 'dep', 'softdep', 'alias'])
    await writeFile(path.join(modules, `modules.${index}`), '');
  const sha256 = 'a'.repeat(64);
  const kernel = { path: path.join(kernelDir, 'vmlinux'), version: KERNEL_VERSION, sha256 };
  await writeFile(path.join(kernelDir, 'kernel.json'), JSON.stringify({ ...kernel, path: undefined, file: 'vmlinux' }));
  const initramfs = { path: path.join(cacheDir, 'initramfs.cpio'), sha256 };
  const rootfs = { path: path.join(cacheDir, 'rootfs.img'), bytes: 4096, format: 'raw' } as const;
  await writeFile(kernel.path, 'kernel');
  await writeFile(initramfs.path, 'initramfs');
  await writeFile(rootfs.path, Buffer.alloc(rootfs.bytes));
  const description = 'A base';
  const base = { stack: 'base', description, default: true, min_rootfs_gb: 1, digest: `sha256:${sha256}` };
  await publishImage(cacheDir, { ...base, kernel, initramfs, rootfs }, { wasBuilt: true, log: () => {} });
}

/** Runs a debugfs command on a disk: `stat /file`, `cat /file`, `ls -l /folder`, `ea_list /file`. */
export async function lookInto(disk: string, command: string): Promise<string> {
  const { stdout, stderr } = await execute('/usr/sbin/debugfs', ['-R', command, disk], { encoding: 'latin1' });
  return stdout + stderr.replace(/^debugfs .*\n/, '');
}
