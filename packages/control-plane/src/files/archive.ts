// Whole trees as tar archives, in both directions.
import type { Readable } from 'node:stream';
import { type FileUnpacked, type FileUnpackQuery, GuestUnpacked } from '@sandbar/contract/file.ts';
import type { App } from '../app.ts';
import { checkAnswer } from '../guest/answer.ts';
import { type MachineStream, openGuestStream, type StreamOptions } from '../guest/stream.ts';
import { decodeBytes } from './entry.ts';
import type { FileTarget } from './target.ts';
import { upload } from './upload.ts';

/** Opens the tar archive of a tree. Throws `not_found`. */
export function openArchive(
  app: App,
  { caller, machineId, path }: FileTarget,
  options: StreamOptions,
): Promise<MachineStream> {
  return openGuestStream(app, caller, machineId, 'files.archive', { path }, options);
}

/**
 * Unpacks a tar archive into a directory. Entries that would leave it, and devices, are left out. Throws `not_found`
 * for a missing directory, `conflict` when the path is not a directory, `validation_error` when the bytes are not an
 * archive, and `disk_full`.
 */
export async function unpackArchive(
  app: App,
  { caller, machineId, path }: FileTarget,
  { user }: Pick<FileUnpackQuery, 'user'>,
  body: Readable,
  options: StreamOptions,
): Promise<FileUnpacked> {
  const stream = await openGuestStream(app, caller, machineId, 'files.unpack', { path, user: user ?? null }, options);
  const { entries, refused, refused_count } = checkAnswer(GuestUnpacked, await upload(body, stream));
  return { entries, refused_count, refused: refused.map(toRefused) };
}

const toRefused = ({ name, reason }: { name: string; reason: string }) => ({
  name: decodeBytes(name).toString(),
  reason,
});
