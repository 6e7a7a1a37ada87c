// Stops the service of a data directory, whoever started it: `sandbar up`, or `npm start` in another terminal.
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { hasErrorCode, Problem } from '../problem.ts';
import { findSupervisor, removeReadyFile } from '../ready-file.ts';
import { endLeftovers } from '../supervise/leftovers.ts';
import { removePidFile } from '../supervise/pid-file.ts';
import { isAlive, type ProcessIdentity } from '../supervise/process-identity.ts';

/** Longer than a stop takes: a minute for the machines, then at most 35 s for each of the processes. */
const STOP_MS = 180_000;
const POLL_MS = 50;

/**
 * Stops the machines and then the service, and resolves when its processes have ended. When the supervisor was killed,
 * ends the processes that it left; their machines go on running. Resolves with whether the service ran. Throws Problem.
 */
export async function stopService(
  home: string,
  report: (line: string) => void,
  patienceMs = STOP_MS,
): Promise<boolean> {
  const supervisor = findSupervisor(home);
  if (supervisor === undefined) {
    await endLeftovers(home, report);
    removePidFile(homePaths(home).pidFile('supervisor'));
    removeReadyFile(home);
    return false;
  }
  askToStop(supervisor, home);
  for (const until = performance.now() + patienceMs; isAlive(supervisor); await delay(POLL_MS)) {
    if (performance.now() < until) continue;
    throw new Problem(`Sandbar does not stop (pid ${supervisor.pid}): look into ${homePaths(home).logs}`);
  }
  return true;
}

function askToStop({ pid }: ProcessIdentity, home: string): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    if (hasErrorCode(error, 'ESRCH')) return;
    if (!hasErrorCode(error, 'EPERM')) throw error;
    throw new Problem(`Sandbar on ${home} (pid ${pid}) belongs to another user: stop it as that user, or as root`);
  }
}
