// Copies files and folders of a machine to this computer. A machine is not trusted: its files are written only below
// the given folder, and never get set-uid, set-gid or sticky bits.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { chmod, mkdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { FileEntry } from '@sandbar/contract/file.ts';
import type { Files } from '@sandbar/sdk/files.ts';
import { UsageError } from './arguments.ts';
import { type CopyOptions, isRemoteDirectory } from './copy-up.ts';
import { printNotice } from './print.ts';
import { Progress } from './progress.ts';
import { pathInside } from './remote-path.ts';

/** Copies `path` of the machine to `target`, a file, a folder or `-` for standard output. Throws UsageError. */
export async function copyDown(files: Files, path: string, target: string, options: CopyOptions): Promise<void> {
  const { isQuiet, signal } = options;
  if (target === '-') {
    await pipeline(files.stream(path, { signal }), process.stdout, { end: false });
    return;
  }
  const entry = await files.stat(path, { signal });
  const isFolder =
    entry.type === 'directory' || (entry.type === 'symlink' && (await isRemoteDirectory(files, path, signal)));
  const existing = await stat(target).catch(() => undefined);
  if (existing === undefined && target.endsWith('/') && !isFolder) throw new UsageError(`there is no folder ${target}`);
  const place = existing?.isDirectory() ? pathInside(target, path) : target;
  if (isFolder) {
    await copyFolder(files, path, place, options);
    return;
  }
  const progress = new Progress(basename(path), entry.type === 'file' ? entry.size : undefined, isQuiet);
  const bytes = progress.count(files.stream(path, { signal }));
  await (existing === undefined || existing.isFile() || existing.isDirectory()
    ? writeWhole(bytes, place, entry)
    : pipeline(bytes, createWriteStream(place))
  ).finally(() => progress.end());
}

/** Writes to a temporary file beside `place` and renames it at the end, so the file appears whole or not at all. */
async function writeWhole(bytes: AsyncIterable<Uint8Array>, place: string, { type, mode }: FileEntry): Promise<void> {
  const partial = join(dirname(place), `.${basename(place)}.${randomBytes(6).toString('hex')}.part`);
  try {
    await pipeline(bytes, createWriteStream(partial, { flags: 'wx', mode: 0o600 }));
    await chmod(
      partial,
      type === 'file' ? Number.parseInt(mode, 8) & 0o777 & ~process.umask() : 0o666 & ~process.umask(),
    );
    await rename(partial, place);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

async function copyFolder(files: Files, path: string, place: string, { isQuiet, signal }: CopyOptions): Promise<void> {
  const { extract } = await import('tar');
  await mkdir(place, { recursive: true });
  const progress = new Progress(basename(path), undefined, isQuiet);
  const unpack = extract({
    cwd: place,
    preserveOwner: false,
    // Drop set-uid, set-gid and the sticky bit, so that a file from the machine gets no special rights on this
    // computer.
    onReadEntry: (entry) => {
      entry.mode = (entry.mode ?? 0o644) & 0o777;
    },
    onwarn: (_code, message) => {
      printNotice(`left out: ${message}`);
      process.exitCode = 1;
    },
  });
  const unpacked = once(unpack, 'close');
  unpacked.catch(() => undefined);
  try {
    for await (const chunk of progress.count(files.archive(path, { signal }))) {
      // The library needs a Buffer: it would treat any other Uint8Array as text.
      const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      if (!unpack.write(bytes)) await once(unpack, 'drain');
    }
    unpack.end();
    await unpacked;
  } finally {
    progress.end();
  }
}
