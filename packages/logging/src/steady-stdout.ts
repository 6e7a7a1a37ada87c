// Standard output for the log. It is usually a file on the disk that machines fill, and a full disk must not end the
// process: a line that cannot be written waits in memory until there is room.
import { writeSync } from 'node:fs';
import type { DestinationStream } from 'pino';

/** Once more than this waits, further lines are dropped. */
const WAITING_BYTES = 64 * 1024;

/**
 * Standard output that never fails. pino's own stream is of no use here: a write that fails ends the process, and its
 * flush after a fatal line never returns while the disk is full.
 */
export function steadyStdout(): DestinationStream {
  let rest = Buffer.alloc(0);
  return {
    write(line) {
      if (rest.length < WAITING_BYTES) rest = Buffer.concat([rest, Buffer.from(line)]);
      try {
        while (rest.length > 0) rest = rest.subarray(writeSync(1, rest));
      } catch {
        // The disk is full, or nobody reads the pipe: the next line tries again.
      }
    },
  };
}
