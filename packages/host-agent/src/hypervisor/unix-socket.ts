// Connects to a Unix socket in a directory of any length: the kernel allows 108 bytes of path, so the directory is
// opened and named through /proc/self/fd.
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** Connects to `dir/name`; rejects with the system's error. */
export async function connectUnix(dir: string, name: string): Promise<Socket> {
  const fd = openSync(dir, 'r');
  try {
    const socket = connect(`/proc/self/fd/${fd}/${name}`);
    await once(socket, 'connect');
    return socket;
  } finally {
    closeSync(fd);
  }
}

/** The same, tried again until it works, `signal` aborts or `giveUp` says that nobody will ever listen. */
export async function connectUnixWhenReady(
  dir: string,
  name: string,
  signal: AbortSignal,
  giveUp: () => boolean,
): Promise<Socket> {
  for (;;) {
    try {
      return await connectUnix(dir, name);
    } catch (error) {
      if (signal.aborted || giveUp()) throw error;
      await delay(3);
    }
  }
}
