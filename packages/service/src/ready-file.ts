// The file that says that the service is ready, and at which address. `sandbar up` waits for it, and `sandbar status`
// reads it. It names the supervisor that wrote it, because a killed supervisor leaves the file behind.
import { readFileSync, rmSync } from 'node:fs';
import { homePaths } from '@sandbar/contract/home.ts';
import { writeAtomically } from './private-file.ts';
import { hasErrorCode } from './problem.ts';
import type { RunningService } from './service.ts';
import { readPidFile } from './supervise/pid-file.ts';
import { isAlive, type ProcessIdentity, startTimeOf } from './supervise/process-identity.ts';

export type Ready = {
  /** The process id of the supervisor, and when that process began. */
  pid: number;
  start_time: string;
  base_url: string;
  /** Null when the dashboard could not be built. */
  dashboard_url: string | null;
  version: string;
};

/** Says that this process runs a service that is ready. */
export async function writeReadyFile(home: string, { baseUrl, hasDashboard }: RunningService): Promise<void> {
  const ready: Ready = {
    pid: process.pid,
    start_time: startTimeOf(process.pid) ?? '',
    base_url: baseUrl,
    dashboard_url: hasDashboard ? baseUrl : null,
    version: versionOfService(),
  };
  await writeAtomically(homePaths(home).ready, `${JSON.stringify(ready, null, 2)}\n`);
}

export function removeReadyFile(home: string): void {
  rmSync(homePaths(home).ready, { force: true });
}

/** The supervisor that runs on the data directory, or undefined. */
export function findSupervisor(home: string): ProcessIdentity | undefined {
  const holder = readPidFile(homePaths(home).pidFile('supervisor'));
  return holder !== undefined && isAlive(holder) ? holder : undefined;
}

/** What the supervisor said when it became ready, or undefined when it is not ready. */
export function readReady(home: string, { pid, startTime }: ProcessIdentity): Ready | undefined {
  try {
    const ready = JSON.parse(readFileSync(homePaths(home).ready, 'utf8')) as Ready;
    return ready.pid === pid && ready.start_time === startTime ? ready : undefined;
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT') || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function versionOfService(): string {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as Ready;
  return version;
}
