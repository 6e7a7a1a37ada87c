// A guest's answers about files, for tests that play the guest.
import type { GuestEntry } from '@sandbar/contract/file.ts';
import { type PlayedStream, playStream } from './guest-stream.ts';

export function guestEntry(changes: Partial<GuestEntry> = {}): GuestEntry {
  return {
    path: '/root/hello.txt',
    type: 'file',
    size: 6,
    mode: 0o644,
    uid: 0,
    gid: 0,
    user: 'root',
    group: 'root',
    mtime_ns: '1767323100123456789',
    ...changes,
  };
}

type Part = { start?: number; end?: number };

/** A guest's `files.read` of a file with this content, as a well-behaved guest answers it. */
export function playFile(content: Buffer, part: Part, etag = 'v1'): PlayedStream {
  const { start: wanted = 0, end = content.length - 1 } = part;
  const start = wanted < 0 ? Math.max(0, content.length + wanted) : wanted;
  const bytes = content.subarray(start, end + 1);
  const entry = guestEntry({ size: content.length });
  const stream = playStream({ entry, start, length: bytes.length, etag });
  stream.guest.write(bytes);
  stream.finish({});
  return stream;
}
