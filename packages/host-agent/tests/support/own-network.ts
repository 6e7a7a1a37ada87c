// Gives a test file a network namespace of its own, so that it can change settings that a host has only once, such as
// `ip_forward` and the connection tracking, and leaves nothing behind.
import { writeFileSync } from 'node:fs';
import koffi from 'koffi';
import { must } from './wire.ts';

const [CLONE_NEWNS, CLONE_NEWNET] = [0x20000, 0x40000000];
const unshare = koffi.load('libc.so.6').func('int unshare(int)');

/**
 * Moves the main thread into a new network namespace until the test process ends. Sockets and processes that the thread
 * makes afterwards are in the namespace too. IP forwarding is off there. The thread sees the namespace in /sys and
 * /proc/sys, but asynchronous calls of node:fs do not, because other threads run them. Needs root.
 */
export function enterOwnNetwork(): void {
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) !== 0) throw new Error(`unshare failed with errno ${koffi.errno()}`);
  must('mount', ['--make-rprivate', '/']);
  // Mount a new /sys, which shows the new network, and add the host's control groups to it.
  must('mount', ['-t', 'sysfs', 'sysfs', '/mnt']);
  must('mount', ['--rbind', '/sys/fs/cgroup', '/mnt/fs/cgroup']);
  must('mount', ['--rbind', '/mnt', '/sys']);
  must('ip', ['link', 'set', 'lo', 'up']);
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '0');
}
