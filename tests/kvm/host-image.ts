// The disk and the kernel of a Debian host that can run KVM itself, made by the builder of machine images: it is the
// base image with the programs that a host of Sandbar needs, and it is cached by content beside it.
import path from 'node:path';
import { type AgentSource, ensureAgent } from '@sandbar/host-agent/images/agent.ts';
import { ensureInitramfs } from '@sandbar/host-agent/images/initramfs.ts';
import { ensureKernel } from '@sandbar/host-agent/images/kernel.ts';
import { readImageRecipe, readKernelRecipe } from '@sandbar/host-agent/images/recipe.ts';
import { ensureRootfs } from '@sandbar/host-agent/images/rootfs.ts';

const RECIPES = path.join(import.meta.dirname, '..', '..', 'images');
const INIT_SOURCES = path.join(import.meta.dirname, 'init');

/** What the set-up of the service would ask apt for, and what its Node needs. */
const PACKAGES = [
  'bubblewrap',
  'conntrack',
  'cpio',
  'debian-archive-keyring',
  'libatomic1',
  'libstdc++6',
  'mmdebstrap',
  'mount',
  'nftables',
  'passwd',
  'qemu-system-x86',
  'qemu-utils',
  'tini',
  'util-linux',
  'zstd',
];

/** Sparse: room for the logs and disks of a few machines. */
const DISK_GB = 8;

export type HostImage = { kernelPath: string; initramfsPath: string; diskPath: string };

/** Builds what is missing. Throws ImageError. */
export async function ensureHostImage(
  cacheDir: string,
  goPath: string,
  log: (line: string) => void,
): Promise<HostImage> {
  const [base, kernelRecipe] = await Promise.all([readImageRecipe(RECIPES, 'base'), readKernelRecipe(RECIPES)]);
  const initSource: AgentSource = { sourceDir: INIT_SOURCES, goPath };
  const [init, kernel] = await Promise.all([
    ensureAgent(cacheDir, initSource, log),
    // Debian's kernel for clouds, which machines boot, has KVM's modules too.
    ensureKernel(cacheDir, kernelRecipe, '', process.env, log),
  ]);
  const recipe = {
    ...base,
    stack: 'kvm-test-host',
    packages: [...new Set([...base.packages, ...PACKAGES])].sort(),
    minRootfsGb: DISK_GB,
  };
  const [initramfs, rootfs] = await Promise.all([
    ensureInitramfs(cacheDir, init, kernel, kernelRecipe.bootModules, log),
    ensureRootfs(cacheDir, recipe, kernel, kernelRecipe.excludedModules, '', process.env, log),
  ]);
  return { kernelPath: kernel.path, initramfsPath: initramfs.path, diskPath: rootfs.path };
}
