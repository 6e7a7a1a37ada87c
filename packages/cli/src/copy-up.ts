// Copies files and folders of this computer into a machine.
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Files } from '@sandbar/sdk/files.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { UsageError } from './arguments.ts';
import { printNotice } from './print.ts';
import { Progress } from './progress.ts';
import { pathInside } from './remote-path.ts';

export type CopyOptions = { user?: string | undefined; isQuiet: boolean; signal: AbortSignal };

const READ_BYTES = 256 * 1024;

/** Copies `source`, a file, a folder or `-` for standard input, to `path` in the machine. Throws UsageError. */
export async function copyUp(files: Files, source: string, path: string, options: CopyOptions): Promise<void> {
  const { user, isQuiet, signal } = options;
  if (source === '-') {
    const progress = new Progress(path, undefined, isQuiet);
    await files.write(path, progress.count(process.stdin), { user, signal }).finally(() => progress.end());
    return;
  }
  const found = await stat(source).catch((error: NodeJS.ErrnoException) => {
    throw new UsageError(`cannot read ${source}: ${error.code === 'ENOENT' ? 'there is no such file' : error.message}`);
  });
  const isInto = path.endsWith('/') || (await isRemoteDirectory(files, path, signal));
  const target = isInto ? pathInside(path, source) : path;
  if (found.isDirectory()) {
    await copyFolder(files, source, target, options);
    return;
  }
  const progress = new Progress(basename(source), found.isFile() ? found.size : undefined, isQuiet);
  const open = () => progress.count(createReadStream(source, { highWaterMark: READ_BYTES }));
  // Only a regular file can be read again for a retry. A pipe cannot.
  const content = found.isFile() ? open : open();
  const mode = found.isFile() ? found.mode & 0o777 : undefined;
  await files.write(target, content, { mode, user, signal }).finally(() => progress.end());
}

async function copyFolder(files: Files, source: string, target: string, options: CopyOptions): Promise<void> {
  const { user, isQuiet, signal } = options;
  const { create } = await import('tar');
  await files.mkdir(target, { user, signal });
  const progress = new Progress(basename(source), undefined, isQuiet);
  // `portable` leaves out the uids and gids of this computer, which belong to other users in the machine.
  const open = () => progress.count(create({ cwd: source, portable: true }, ['.']) as AsyncIterable<Uint8Array>);
  const unpacked = await files.unpack(target, open, { user, signal }).finally(() => progress.end());
  for (const { name, reason } of unpacked.refused) printNotice(`${name} was left out: ${reason}`);
  if (unpacked.refused_count > 0) process.exitCode = 1;
}

/** Whether a path in the machine is a directory, or a symlink to a directory. */
export async function isRemoteDirectory(files: Files, path: string, signal: AbortSignal): Promise<boolean> {
  try {
    const { type } = await files.stat(path, { signal });
    if (type !== 'symlink') return type === 'directory';
    for await (const _entry of files.entries(path, { signal })) break;
    return true;
  } catch (error) {
    if (error instanceof SandbarError && ['not_found', 'conflict'].includes(error.code)) return false;
    throw error;
  }
}
