// Connects to a Unix socket in a directory of any length that belongs to a VM: the kernel allows 108 bytes of path and
// follows symlinks, so the socket itself is opened, looked at, and named through /proc/self/fd.
import { once } from 'node:events';
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Of Linux; opens the name of a thing, not the thing. Node has no constant for it. */
const O_PATH = 0o10000000;

/** Connects to `dir/name`; rejects with the system's error, or when something else than a socket is there. */
export async function connectUnix(dir: string, name: string): Promise<Socket> {
  const fd = openSync(join(dir, name), O_PATH | constants.O_NOFOLLOW);
  try {
    if (!fstatSync(fd).isSocket()) throw new Error(`${join(dir, name)} is not a socket`);
    const socket = connect(`/proc/self/fd/${fd}`);
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
