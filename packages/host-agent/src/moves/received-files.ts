// Writes the files of a stream from another host. Holes stay holes. The files get their names only after the checksum
// of the whole stream was found right and they are on disk.
import { type FileHandle, open } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { writeUsed } from '../storage/sparse-file.ts';
import type { ArchiveReader } from './archive.ts';

/** A file to write. Without a path its bytes are dropped, because this host has the file already. */
export type WantedFile = { path: string | undefined; bytes: number };

/**
 * Writes the files of a stream and syncs them. `wanted` are its files in the order of its head; they must not exist.
 * Throws `fleet_capacity` when the disk gets short, and `host_unavailable` when the stream breaks off or is damaged.
 */
export async function writeReceivedFiles(
  archive: ArchiveReader,
  wanted: readonly WantedFile[],
  room: DiskRoom,
  signal: AbortSignal,
): Promise<void> {
  const files: (FileHandle | undefined)[] = [];
  try {
    for (const { path, bytes } of wanted) {
      const file = path === undefined ? undefined : await open(path, 'wx', 0o600);
      files.push(file);
      await file?.truncate(bytes);
    }
    for await (const { file: index, offset, bytes } of archive.blocks()) {
      signal.throwIfAborted();
      const described = wanted[index];
      if (!described || offset + bytes.length > described.bytes)
        throw new ServiceError('host_unavailable', 'the copy has bytes outside of its files');
      if (room.isShort) throw diskFull(new Error('the disk got short while a copy was written'));
      const file = files[index];
      if (file) await writeUsed(file.fd, bytes, offset);
    }
    signal.throwIfAborted();
    for (const file of files) await file?.sync();
  } catch (error) {
    throw isDiskFull(error) ? diskFull(error) : error;
  } finally {
    for (const file of files) await file?.close();
  }
}
