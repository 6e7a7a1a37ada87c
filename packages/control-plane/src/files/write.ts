// Writes a file. The guest agent writes a new file and renames it at the end, so the file appears whole or not at all,
// also when the connection breaks in the middle of the body.
import type { Readable } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type FileEntry, type FileWriteQuery, GuestWriteHead, GuestWritten } from '@sandbar/contract/file.ts';
import type { App } from '../app.ts';
import { checkAnswer } from '../guest/answer.ts';
import { type MachineStream, openGuestStream, type StreamOptions } from '../guest/stream.ts';
import { toEntry } from './entry.ts';
import type { FileTarget } from './target.ts';
import { upload } from './upload.ts';

export type Writing = Omit<FileWriteQuery, 'path'> & {
  /** Whether to throw `conflict` when the file exists already. */
  exclusive: boolean;
  /** The ETag that the file must have, without quotes. Otherwise `conflict` is thrown. Undefined: any, or no file. */
  ifEtag: string | undefined;
};

/**
 * Writes `body` to the file and returns its entry. Throws `not_found` when a directory is missing and `parents` is
 * false, `conflict` when the path is not a file, and `disk_full`.
 */
export async function writeFile(
  app: App,
  { caller, machineId, path }: FileTarget,
  { mode, user, parents = true, exclusive, ifEtag }: Writing,
  body: Readable,
  options: StreamOptions,
): Promise<FileEntry> {
  const condition = ifEtag === undefined ? {} : { if_etag: ifEtag };
  const params = { path, mode: modeNumber(mode), user: user ?? null, parents, exclusive, ...condition };
  const stream = await openGuestStream(app, caller, machineId, 'files.write', params, options);
  checkHead(stream, ifEtag);
  const { entry } = checkAnswer(GuestWritten, await upload(body, stream));
  return toEntry({ ...entry, path: entry.path ?? path });
}

/** Ends the stream and throws `conflict` when the guest is too old to know the condition, so that it writes nothing. */
function checkHead({ head, duplex }: MachineStream, ifEtag: string | undefined): void {
  if (ifEtag === undefined || checkAnswer(GuestWriteHead, head).if_etag === ifEtag) return;
  duplex.destroy();
  throw new ServiceError(
    'conflict',
    'This machine was created by an older version of the service and cannot check If-Match; create a new one.',
  );
}

/**
 * Returns the permission bits of an octal text, or null without a text. Null: the guest keeps those of an existing
 * file, and gives a new file the default.
 */
export const modeNumber = (mode: string | undefined): number | null =>
  mode === undefined ? null : Number.parseInt(mode, 8);
