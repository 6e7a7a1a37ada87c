// Builds the disk and the kernel of the VM in which the KVM test runs: a Debian that can run KVM guests itself. It is
// the base image of machines plus the programs that a host of Sandbar needs, built and cached by the same image
// builder.
import path from 'node:path';
import { type AgentSource, ensureAgent } from '@sandbar/host-agent/images/agent.ts';
import { ensureInitramfs } from '@sandbar/host-agent/images/initramfs.ts';
import { ensureKernel } from '@sandbar/host-agent/images/kernel.ts';
import { readImageRecipe, readKernelRecipe } from '@sandbar/host-agent/images/recipe.ts';
import { ensureRootfs } from '@sandbar/host-agent/images/rootfs.ts';

const RECIPES = path.join(import.meta.dirname, '..', '..', 'images');
const INIT_SOURCES = path.join(import.meta.dirname, 'init');

/** The packages that `npm start` and `npm test` would install with apt, and the libraries that Node needs. */
const PACKAGES = [
  'bubblewrap',
  'busybox-static',
  'conntrack',
  'cpio',
  'debian-archive-keyring',
  'docker-registry',
  'libatomic1',
  'libstdc++6',
  'mmdebstrap',
  'mount',
  'nftables',
  'passwd',
  'qemu-system-x86',
  'qemu-utils',
  'skopeo',
  'tini',
  'uidmap',
  'umoci',
  'util-linux',
  'zstd',
];

/** Room for the logs and disks of a few machines. The file is sparse. */
const DISK_GB = 8;

export type HostImage = { kernelPath: string; initramfsPath: string; diskPath: string };

/** Builds the parts of the image that are not in the cache. Throws `ImageError`. */
export async function ensureHostImage(
  cacheDir: string,
  goPath: string,
  log: (line: string) => void,
): Promise<HostImage> {
  const [base, kernelRecipe] = await Promise.all([readImageRecipe(RECIPES, 'base'), readKernelRecipe(RECIPES)]);
  const initSource: AgentSource = { sourceDir: INIT_SOURCES, goPath };
  const [init, kernel] = await Promise.all([
    ensureAgent(cacheDir, initSource, log),
    // Debian's cloud kernel, which machines boot as well. It has the modules of KVM, so it also suits the nested host.
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
