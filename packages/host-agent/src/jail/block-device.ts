// Finds the disk under a file system, because control groups limit whole disks and not partitions.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { deviceNumbers } from './device-nodes.ts';

/**
 * Returns the disk of the file system that `path` is on, as `major:minor`. Undefined when the file system is not on one
 * block device, for example btrfs, ZFS, overlayfs or a network file system.
 */
export function diskOf(path: string, sysDevices = '/sys/dev/block'): string | undefined {
  const { major, minor } = deviceNumbers(statSync(path).dev);
  const device = `${sysDevices}/${major}:${minor}`;
  if (!existsSync(device)) return undefined;
  return existsSync(`${device}/partition`) ? readFileSync(`${device}/../dev`, 'utf8').trim() : `${major}:${minor}`;
}
