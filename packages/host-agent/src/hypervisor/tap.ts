// Opens a tap for QEMU. A tap can be opened by name only in its own network namespace, but QEMU runs in another network
// namespace. So the agent opens the tap and passes the descriptor to QEMU.
import { closeSync, constants, openSync } from 'node:fs';
import koffi from 'koffi';

/** Constants from linux/if_tun.h. The flags are those with which QEMU itself opens a tap. */
const TUNSETIFF = 0x400454ca;
const IFF_TAP = 0x0002;
const IFF_NO_PI = 0x1000;
const IFF_VNET_HDR = 0x4000;
/** struct ifreq: the name in 16 bytes, then the flags. */
const IFREQ_BYTES = 40;
const FLAGS_AT = 16;
const MAX_NAME = 15;

const libc = koffi.load('libc.so.6');
const ioctl = libc.func('int ioctl(int fd, unsigned long request, void *argument)');

/** Runs on a worker thread: the kernel has one lock for all changes of interfaces, and may hold it for milliseconds. */
function ioctlOnWorker(fd: number, request: number, argument: Buffer): Promise<number> {
  return new Promise((resolve, reject) =>
    ioctl.async(fd, request, argument, (error: Error | null, result: number) =>
      error ? reject(error) : resolve(result),
    ),
  );
}

/** Returns the descriptor of an existing tap; the caller closes it. Throws when the kernel refuses. */
export async function openTap(name: string): Promise<number> {
  if (name.length === 0 || name.length > MAX_NAME) throw new Error(`"${name}" is no name of an interface`);
  const fd = openSync('/dev/net/tun', constants.O_RDWR | constants.O_NONBLOCK);
  const request = Buffer.alloc(IFREQ_BYTES);
  request.write(name, 'latin1');
  request.writeUInt16LE(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, FLAGS_AT);
  try {
    if ((await ioctlOnWorker(fd, TUNSETIFF, request)) !== 0) throw new Error(`the tap ${name} cannot be opened`);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
