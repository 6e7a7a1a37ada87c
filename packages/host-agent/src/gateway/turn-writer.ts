// Sends the frames of one turn of the event loop with one system call. When a guest's answer, output and end of a job
// arrive together, the agent gets them together too.
import type { Writable } from 'node:stream';

/** Returns a function that writes a frame to `channel`. */
export function turnWriter(channel: Writable): (frame: Buffer) => void {
  let isCorked = false;
  return (frame) => {
    if (!isCorked) {
      isCorked = true;
      channel.cork();
      // Node runs this when all promises are settled that the current event has resolved.
      process.nextTick(() => {
        isCorked = false;
        channel.uncork();
      });
    }
    channel.write(frame);
  };
}
