// Watches files: turns the lines of a guest's stream into events. A line is bounded, so that a hostile guest cannot
// make this process keep an endless one.
import type { Readable } from 'node:stream';
import { type FileEvent, GuestFileEvent } from '@sandbar/contract/file.ts';
import type { App } from '../app.ts';
import { badAnswer, checkAnswer } from '../guest/answer.ts';
import { type MachineStream, openGuestStream, type StreamOptions } from '../guest/stream.ts';
import { toEvent } from './entry.ts';
import type { FileTarget } from './target.ts';

/** Bytes of one line: two percent-encoded paths and the names of the fields. */
const LINE_BYTES_MAX = 64 * 1024;
const LINE_END = 0x0a;

/** Opens a watch of a path. Throws `not_found`. */
export function openWatch(
  app: App,
  { caller, machineId, path }: FileTarget,
  recursive: boolean,
  options: StreamOptions,
): Promise<MachineStream> {
  return openGuestStream(app, caller, machineId, 'files.watch', { path, recursive }, options);
}

/**
 * Yields the events of a watch. Ends when the watched path is removed. Throws the reason when the watch ends otherwise,
 * or the error of a bad answer.
 */
export async function* readEvents({ duplex, result }: MachineStream): AsyncGenerator<FileEvent> {
  for await (const line of linesOf(duplex)) yield toEvent(checkAnswer(GuestFileEvent, parse(line)));
  await result;
}

async function* linesOf(source: Readable): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of source) {
    let bytes = rest.length === 0 ? (chunk as Buffer) : Buffer.concat([rest, chunk as Buffer]);
    for (let end = bytes.indexOf(LINE_END); end >= 0; end = bytes.indexOf(LINE_END)) {
      yield bytes.subarray(0, end);
      bytes = bytes.subarray(end + 1);
    }
    if (bytes.length > LINE_BYTES_MAX) throw badAnswer('an event that is too long');
    rest = bytes;
  }
}

function parse(line: Buffer): unknown {
  try {
    return JSON.parse(line.toString());
  } catch {
    throw badAnswer('an event that is not JSON');
  }
}
