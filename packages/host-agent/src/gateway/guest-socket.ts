// Gives the gateway access to the socket of one guest. The socket lies in a folder of the VM's uid, so a compromised
// QEMU may have put anything there. So the agent first makes a hard link in the gateway's folder, where the VM cannot
// change it, and then checks that the link is a socket. Making a hard link follows no symlink.
import { chownSync, closeSync, constants, fstatSync, linkSync, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/** Linux flag: opens only a reference to the file system entry, not the socket itself. Node has no constant for it. */
const O_PATH = 0o10000000;

export type Account = { uid: number; gid: number };

/**
 * Creates `place` as a hard link to the socket `dir/name`, and gives the socket to `owner`, if defined. Throws the
 * system's error, and when the entry is not a socket.
 */
export function placeSocket(dir: string, name: string, place: string, owner: Account | undefined): void {
  linkSync(join(dir, name), place);
  try {
    const fd = openSync(place, O_PATH | constants.O_NOFOLLOW);
    try {
      if (!fstatSync(fd).isSocket()) throw new Error(`${join(dir, name)} is not a socket`);
      // Uses the descriptor instead of the name, so that exactly the socket that was just checked changes its owner.
      if (owner) chownSync(`/proc/self/fd/${fd}`, owner.uid, owner.gid);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    rmSync(place, { force: true });
    throw error;
  }
}
