// Takes this host out of its fleet: removes its key and certificate, so nobody can connect to its agent any more.
import { readdirSync } from 'node:fs';
import { homePaths } from '@sandbar/contract/home.ts';
import { readIdentity, readJoinRecord, removeFleetFiles } from '@sandbar/host-agent/fleet/fleet-files.ts';
import type { ServiceConfig } from '../config.ts';
import { hasErrorCode, Problem } from '../problem.ts';
import { findSupervisor } from '../ready-file.ts';

export type Left = {
  /** The control plane, if the host had joined one. */
  url: string | undefined;
  /** Whether the agent still runs, and listens until it ends. */
  isRunning: boolean;
};

/** Throws Problem when there are machines or disks on the host, unless `isForced`. */
export function leaveFleet({ home, isRoot }: ServiceConfig, isForced: boolean): Left {
  if (!isRoot) throw new Problem('Only root can read the files of the fleet: run this command as root');
  const { machines, volumes, snapshots } = homePaths(home);
  const kept = { machine: count(machines), volume: count(volumes), snapshot: count(snapshots) };
  const list = Object.entries(kept).flatMap(([what, number]) =>
    number > 0 ? [`${number} ${what}${number === 1 ? '' : 's'}`] : [],
  );
  if (list.length > 0 && !isForced) {
    throw new Problem(
      `This host still has ${list.join(', ')}: remove it there first with: sandbar admin host remove, or leave them behind with --force`,
    );
  }
  const url = readIdentity(home) && readJoinRecord(home)?.url;
  removeFleetFiles(home);
  return { url, isRunning: findSupervisor(home) !== undefined };
}

function count(folder: string): number {
  try {
    return readdirSync(folder).length;
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return 0;
    throw error;
  }
}
