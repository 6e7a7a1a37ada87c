// Standard output for the log. It is usually a file on the same disk as the machines, which may be full. A full disk
// must not end the process, so lines that cannot be written wait in memory until there is room.
import { writeSync } from 'node:fs';
import type { DestinationStream } from 'pino';

/** When more bytes than this wait in memory, further lines are dropped. */
const WAITING_BYTES = 64 * 1024;

/**
 * Returns a stream to standard output that never fails. pino's own stream ends the process when a write fails, and its
 * flush after a fatal error never returns while the disk is full.
 */
export function steadyStdout(): DestinationStream {
  let rest = Buffer.alloc(0);
  return {
    write(line) {
      if (rest.length < WAITING_BYTES) rest = Buffer.concat([rest, Buffer.from(line)]);
      try {
        while (rest.length > 0) rest = rest.subarray(writeSync(1, rest));
      } catch {
        // The disk is full, or nobody reads the pipe. The next call tries again.
      }
    },
  };
}
