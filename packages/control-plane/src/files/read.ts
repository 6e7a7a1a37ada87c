// Opens a file, or a part of it, for reading. The head of the stream describes the file that the guest has opened. The
// answer to the client is made from this head, so its size, ETag and bytes are of the same version of the file.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { GuestReadHead } from '@sandbar/contract/file.ts';
import type { App } from '../app.ts';
import { badAnswer, checkAnswer } from '../guest/answer.ts';
import { type MachineStream, openGuestStream, type StreamOptions } from '../guest/stream.ts';
import { allowsRange, type ByteRange } from './conditions.ts';
import { modifiedAt } from './entry.ts';
import type { FileTarget } from './target.ts';

export type OpenedFile = {
  stream: MachineStream;
  etag: string;
  modifiedAt: Date;
  /** Bytes of the whole file. */
  size: number;
  /** Bytes that the stream will have; null when the size of the file is unknown, as in /proc. */
  length: number | null;
  /** Where the sent part begins in the file; undefined when the whole file is sent. */
  start: number | undefined;
};

/** The range begins behind the end of the file, which has `size` bytes. */
export class RangeNotSatisfiable extends ServiceError {
  readonly size: number;
  constructor(size: number) {
    super('range_not_satisfiable', `The range begins behind the end of the file, which has ${size} bytes.`);
    this.size = size;
  }
}

/** `start` counts from the end of the file if it is negative. `end` is inclusive. */
type Part = { start?: number; end?: number };
type Wanted = { range: ByteRange | undefined; ifRange: string | undefined };

const ETAG = /^"?([\x21\x23-\x7e]{1,126})"?$/;

/**
 * Opens a file. With `range`, opens that part if `ifRange` is the present ETag or undefined, otherwise the whole file.
 * Throws RangeNotSatisfiable, and the errors of openGuestStream: `not_found` for a missing path, `conflict` when the
 * path is not a file.
 */
export async function openFile(
  app: App,
  target: FileTarget,
  { range, ifRange }: Wanted,
  options: StreamOptions,
): Promise<OpenedFile> {
  if (range === undefined) return open(app, target, {}, options);
  const opened = await open(app, target, toPart(range), options);
  // Only a file of known size can be sent in part. Send the whole file otherwise, or when it is not the one of
  // `ifRange`.
  if (opened.length !== null && allowsRange(ifRange, opened.etag)) return opened;
  opened.stream.duplex.destroy();
  return open(app, target, {}, options);
}

function toPart(range: ByteRange): Part {
  if (!('last' in range)) return range;
  // No file can satisfy a range of the last 0 bytes. So ask for a start behind the end of every file: it gets the same
  // refusal.
  return { start: range.last === 0 ? Number.MAX_SAFE_INTEGER : -range.last };
}

async function open(
  app: App,
  { caller, machineId, path }: FileTarget,
  part: Part,
  options: StreamOptions,
): Promise<OpenedFile> {
  const stream = await openGuestStream(app, caller, machineId, 'files.read', { path, ...part }, options);
  try {
    return { stream, ...toOpened(stream.head, part) };
  } catch (error) {
    stream.duplex.destroy();
    throw error;
  }
}

function toOpened(head: unknown, part: Part): Omit<OpenedFile, 'stream'> {
  const { entry, start, length, etag } = checkAnswer(GuestReadHead, head);
  const { size } = entry;
  const isPart = part.start !== undefined;
  const wanted = part.start ?? 0;
  const begin = wanted < 0 && length !== null ? Math.max(0, size + wanted) : wanted;
  const tag = ETAG.exec(etag)?.[1];
  if (tag === undefined) throw badAnswer('an ETag with other characters than it may have');
  if (isPart && length !== null && begin >= size) throw new RangeNotSatisfiable(size);
  const most = (part.end ?? Number.MAX_SAFE_INTEGER) - start + 1;
  const fits = length === null || (start + length <= size && length <= most && (length > 0 || !isPart));
  if (start !== begin || !fits) throw badAnswer('another part of the file than was asked for');
  return { etag: `"${tag}"`, modifiedAt: modifiedAt(entry), size, length, start: isPart ? start : undefined };
}
