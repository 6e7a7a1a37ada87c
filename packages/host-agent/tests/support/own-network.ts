// Gives a test file a network namespace of its own, so that it can change what a whole host has only once, such as
// `ip_forward` and the connection tracking, and leaves nothing behind.
import { writeFileSync } from 'node:fs';
import koffi from 'koffi';
import { must } from './wire.ts';

const [CLONE_NEWNS, CLONE_NEWNET] = [0x20000, 0x40000000];
const unshare = koffi.load('libc.so.6').func('int unshare(int)');

/**
 * Moves the main thread, its sockets and the processes that it starts into a new network namespace, until the test process
 * ends. It is like a host that forwards nothing. The thread sees it in /sys and /proc/sys, except through asynchronous calls
 * of node:fs, which other threads run. Needs root.
 */
export function enterOwnNetwork(): void {
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) !== 0) throw new Error(`unshare failed with errno ${koffi.errno()}`);
  must('mount', ['--make-rprivate', '/']);
  // The new /sys shows the new network, and the host's control groups.
  must('mount', ['-t', 'sysfs', 'sysfs', '/mnt']);
  must('mount', ['--rbind', '/sys/fs/cgroup', '/mnt/fs/cgroup']);
  must('mount', ['--rbind', '/mnt', '/sys']);
  must('ip', ['link', 'set', 'lo', 'up']);
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '0');
}
