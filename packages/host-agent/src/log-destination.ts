// Standard output for the log. It is a file on the disk that machines fill, and a line that does not fit must not end the
// process: it is held back until there is room, and dropped when too much is.
import { writeSync } from 'node:fs';
import type { DestinationStream } from 'pino';

const HELD_BACK_BYTES = 64 * 1024;

/**
 * Standard output that never fails. Not pino's own stream: a write that fails ends the process there, and its flush after
 * a fatal line never returns while the disk is full.
 */
export function steadyStdout(): DestinationStream {
  let rest = Buffer.alloc(0);
  return {
    write(line) {
      if (rest.length < HELD_BACK_BYTES) rest = Buffer.concat([rest, Buffer.from(line)]);
      try {
        while (rest.length > 0) rest = rest.subarray(writeSync(1, rest));
      } catch {
        // No room, or nobody who reads: the next line tries again.
      }
    },
  };
}
