/**
 * Builds the initramfs: the guest agent as /init, and the kernel modules that it needs to find the disk and the host.
 * Neither the archive nor the modules are compressed, because unpacking would cost the guest more time than reading
 * costs the host.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import zlib from 'node:zlib';
import type { AgentArtifact } from './agent.ts';
import { runBuildCommand } from './build-command.ts';
import { cacheKey, ensureArtifact, hashFile } from './cache.ts';
import { ImageError } from './image-error.ts';
import type { KernelArtifact } from './kernel.ts';
import { orderModules, parseModuleIndex } from './module-order.ts';
import { type CpioEntry, writeNewc } from './newc.ts';
import type { Progress } from './progress.ts';

const VERSION = 2;

/** Mount points of the guest agent. It mounts the disk at `root-fs` and then makes that folder its root. */
const FOLDERS = ['dev', 'proc', 'sys', 'root-fs'];

export interface InitramfsArtifact {
  key: string;
  path: string;
  sha256: string;
}

/**
 * Returns `<cacheDir>/initramfs/<key>/initramfs.cpio`, and builds it when it is missing. Throws ImageError when the
 * kernel lacks one of the modules.
 */
export async function ensureInitramfs(
  cacheDir: string,
  agent: AgentArtifact,
  kernel: KernelArtifact,
  bootModules: readonly string[],
  log: Progress,
): Promise<InitramfsArtifact> {
  const key = cacheKey('initramfs', VERSION, agent.key, kernel.key, bootModules);
  const { folder } = await ensureArtifact(
    path.join(cacheDir, 'initramfs'),
    key,
    async (temporary) => {
      log('packing the initramfs');
      const archive = writeNewc(await initramfsEntries(agent, kernel, bootModules));
      await writeFile(path.join(temporary, 'initramfs.cpio'), archive);
      await writeFile(path.join(temporary, 'sha256'), await hashFile(path.join(temporary, 'initramfs.cpio')));
    },
    ['initramfs.cpio', 'sha256'],
  );
  const sha256 = await readFile(path.join(folder, 'sha256'), 'utf8');
  return { key, path: path.join(folder, 'initramfs.cpio'), sha256 };
}

async function initramfsEntries(
  agent: AgentArtifact,
  kernel: KernelArtifact,
  bootModules: readonly string[],
): Promise<CpioEntry[]> {
  const folder = path.join(kernel.modulesRoot, 'lib', 'modules', kernel.version);
  const files = await bootModuleFiles(folder, bootModules);
  const modules = await Promise.all(
    files.map(async (file): Promise<CpioEntry & { kind: 'file' }> => {
      const content = await readModule(path.join(folder, file));
      return { kind: 'file', path: `modules/${plainName(file)}`, mode: 0o644, content };
    }),
  );
  const list = modules.map((module) => `/${module.path}\n`).join('');
  return [
    ...[...FOLDERS, 'modules'].map((name): CpioEntry => ({ kind: 'folder', path: name, mode: 0o755 })),
    // The kernel opens this device as standard input and output of /init, before anything could have mounted devtmpfs.
    { kind: 'character device', path: 'dev/console', mode: 0o600, major: 5, minor: 1 },
    { kind: 'file', path: 'init', mode: 0o755, content: await readFile(agent.path) },
    { kind: 'file', path: 'modules.list', mode: 0o644, content: Buffer.from(list) },
    ...modules,
  ];
}

async function bootModuleFiles(folder: string, bootModules: readonly string[]): Promise<string[]> {
  const [dep, builtin, softdep, alias] = await Promise.all(
    ['modules.dep', 'modules.builtin', 'modules.softdep', 'modules.alias'].map((name) =>
      readFile(path.join(folder, name), 'utf8'),
    ),
  );
  const index = parseModuleIndex({
    dep: dep ?? '',
    builtin: builtin ?? '',
    softdep: softdep ?? '',
    alias: alias ?? '',
  });
  try {
    return orderModules(index, bootModules);
  } catch (error) {
    throw new ImageError(`Cannot pack the initramfs: ${String(error)}; correct boot_modules in the kernel's recipe`);
  }
}

async function readModule(file: string): Promise<Buffer> {
  return withoutSignature(await decompressModule(file));
}

async function decompressModule(file: string): Promise<Buffer> {
  if (file.endsWith('.xz')) return runBuildCommand({ command: 'xz', args: ['-dc', file] });
  const content = await readFile(file);
  if (file.endsWith('.zst')) return zlib.zstdDecompressSync(content);
  return file.endsWith('.gz') ? zlib.gunzipSync(content) : content;
}

const SIGNATURE_MARK = '~Module signature appended~\n';
const SIGNATURE_HEAD = 12;

/**
 * Returns the module without the signature at its end (struct module_signature of the kernel: the last 4 bytes before
 * the mark are the signature's length). Verifying one signature takes 17 ms under emulation, all of them 170 ms. A
 * signature proves nothing here, because whoever could change the initramfs could also change the kernel next to it. As
 * a side effect the guest's kernel has the taint flag E.
 */
export function withoutSignature(module: Buffer): Buffer {
  const markAt = module.length - SIGNATURE_MARK.length;
  if (markAt < SIGNATURE_HEAD || module.toString('latin1', markAt) !== SIGNATURE_MARK) return module;
  return module.subarray(0, markAt - SIGNATURE_HEAD - module.readUInt32BE(markAt - 4));
}

function plainName(file: string): string {
  return path.basename(file).replace(/\.ko\.\w+$/, '.ko');
}
