// Turns what a guest agent says about a file into what clients get. A guest may be hostile, so an invalid path or time
// is reported as a bad answer of the guest, not as an error of the service.
import { isUtf8 } from 'node:buffer';
import type { FileEntry, FileEvent, GuestEntry, GuestFileEvent } from '@sandbar/contract/file.ts';
import { decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import { badAnswer } from '../guest/answer.ts';

const SLASH = 0x2f;
const NANOSECONDS = /^-?\d{1,19}$/;

/** Throws the error of a bad answer. */
export function toEntry(entry: GuestEntry): FileEntry {
  const path = readPath(entry.path);
  return {
    ...textOf(path),
    name: nameOf(path),
    type: entry.type,
    size: entry.size,
    mode: entry.mode.toString(8).padStart(4, '0'),
    user: entry.user || String(entry.uid),
    group: entry.group || String(entry.gid),
    modified_at: modifiedAt(entry).toISOString(),
    ...(entry.target === undefined ? {} : { target: decodeBytes(entry.target).toString() }),
  };
}

/** When the file was changed last. Throws the error of a bad answer. */
export function modifiedAt({ mtime_ns }: Pick<GuestEntry, 'mtime_ns'>): Date {
  if (!NANOSECONDS.test(mtime_ns)) throw badAnswer('a time that is not a number');
  return new Date(Number(BigInt(mtime_ns) / 1_000_000n));
}

/** Throws the error of a bad answer. */
export function toEvent({ type, path, from }: GuestFileEvent): FileEvent {
  if (path === undefined && type !== 'ready' && type !== 'overflow') throw badAnswer('an event without a path');
  const event: FileEvent = { type };
  if (path !== undefined) Object.assign(event, textOf(readPath(path)));
  if (from === undefined) return event;
  const { path: text, path_encoded: encoded } = textOf(readPath(from));
  return { ...event, from: text, ...(encoded === undefined ? {} : { from_encoded: encoded }) };
}

/** The bytes of a path of the guest. Throws the error of a bad answer. */
function readPath(encoded: string): Buffer {
  const path = decodeBytes(encoded);
  if (path[0] !== SLASH || path.includes(0)) throw badAnswer('a path that is not absolute or has a zero byte');
  return path;
}

/** The bytes of a percent-encoded text of the guest. Throws the error of a bad answer. */
export function decodeBytes(encoded: string): Buffer {
  try {
    return Buffer.from(decodePath(encoded));
  } catch {
    throw badAnswer('a path that is not percent-encoded');
  }
}

/** Returns a path as text, and also percent-encoded if it is not valid UTF-8, because the text then has lost bytes. */
function textOf(path: Buffer): { path: string; path_encoded?: string } {
  const text = path.toString();
  return isUtf8(path) ? { path: text } : { path: text, path_encoded: encodePath(path) };
}

/** The last part of a path; `/` for the root. */
function nameOf(path: Buffer): string {
  const parts = path.toString().split('/').filter(Boolean);
  return parts.at(-1) ?? '/';
}
