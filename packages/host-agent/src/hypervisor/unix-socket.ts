// Connects to a Unix socket in a VM's run directory. The socket's path may be longer than the 108 bytes that the kernel
// accepts, and a compromised QEMU may have put a symlink there. Therefore the code opens the socket without following
// links, checks its type, and connects through /proc/self/fd.
import { once } from 'node:events';
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Linux flag: opens only a reference to the file system entry, not the socket itself. Node has no constant for it. */
const O_PATH = 0o10000000;

/** Connects to the socket `dir/name`. Rejects with the system's error, or when the entry is not a socket. */
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

/**
 * Like {@link connectUnix}, but retries until it succeeds, `signal` aborts, or `giveUp` returns true. Rejects with the
 * last error.
 */
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
