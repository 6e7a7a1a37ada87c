// Looks up, removes and moves files, and makes directories: the operations that are one call to the guest agent.
import {
  type DirectoryCreate,
  type FileEntry,
  type FileMove,
  GuestDirectory,
  GuestEntry,
  GuestNothing,
} from '@sandbar/contract/file.ts';
import { checkPath, decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import type { App } from '../app.ts';
import { callGuest } from '../guest/call.ts';
import { toEntry } from './entry.ts';
import type { FileTarget } from './target.ts';
import { modeNumber } from './write.ts';

/** The mode of a new directory when none is given. */
const DIRECTORY_MODE = 0o755;

/**
 * Returns the entry of a path. For a symlink, the entry describes the symlink and not its target. Throws `not_found`.
 */
export async function getEntry(app: App, { caller, machineId, path }: FileTarget): Promise<FileEntry> {
  return toEntry(await callGuest(app, caller, machineId, 'files.entry', { path }, GuestEntry));
}

/**
 * Removes a file or an empty directory, or with `recursive` a directory with everything in it. Throws `not_found`,
 * `conflict`.
 */
export async function removeFile(app: App, { caller, machineId, path }: FileTarget, recursive: boolean): Promise<void> {
  await callGuest(app, caller, machineId, 'files.remove', { path, recursive }, GuestNothing);
}

/**
 * Makes a directory, and the directories above it that are missing. `created` is false if it was there already. Throws
 * `validation_error`, and `conflict` when something other than a directory is there.
 */
export async function createDirectory(
  app: App,
  { caller, machineId }: Omit<FileTarget, 'path'>,
  { path, path_encoded, mode, user }: DirectoryCreate,
): Promise<{ entry: FileEntry; created: boolean }> {
  const params = {
    path: bodyPath('path', path, path_encoded),
    mode: modeNumber(mode) ?? DIRECTORY_MODE,
    user: user ?? null,
    parents: true,
  };
  const made = await callGuest(app, caller, machineId, 'files.mkdir', params, GuestDirectory);
  return { entry: toEntry(made.entry), created: made.created };
}

/** Moves a file or directory and returns its new entry. Throws `validation_error`, `not_found`, `conflict`. */
export async function moveFile(
  app: App,
  { caller, machineId }: Omit<FileTarget, 'path'>,
  { from, from_encoded, to, to_encoded, overwrite = false }: FileMove,
): Promise<FileEntry> {
  const params = { from: bodyPath('from', from, from_encoded), to: bodyPath('to', to, to_encoded), overwrite };
  return toEntry(await callGuest(app, caller, machineId, 'files.move', params, GuestEntry));
}

/** Returns the path in a request body, which gives it either as text or percent-encoded. Throws `validation_error`. */
function bodyPath(field: string, text: string | undefined, encoded: string | undefined): string {
  const path = encoded === undefined ? Buffer.from(text ?? '') : decodePath(encoded);
  checkPath(path, encoded === undefined ? field : `${field}_encoded`);
  return encodePath(path);
}
