// Runs a joined host: sets the computer up and supervises the host agent, without a control plane and a database. When it
// ends, machines go on running, because the control plane decides about them.
import { homePaths } from '@sandbar/contract/home.ts';
import { readIdentity } from '@sandbar/host-agent/fleet/fleet-files.ts';
import { assertRestored } from '../backup/unfinished.ts';
import type { ServiceConfig } from '../config.ts';
import { Problem } from '../problem.ts';
import type { Progress } from '../progress.ts';
import { alreadyRunning, assertNotRunning } from '../service.ts';
import { setUpHost } from '../setup/setup.ts';
import { endChildren } from '../supervise/children.ts';
import { hostAgentDefinition } from '../supervise/definitions.ts';
import { endLeftovers } from '../supervise/leftovers.ts';
import { spareProcess } from '../supervise/oom-score.ts';
import { claimPidFile, removePidFile } from '../supervise/pid-file.ts';
import { DEFAULT_BACKOFF, SupervisedProcess } from '../supervise/supervised-process.ts';

/**
 * Resolves when the agent has ended after an abort of `stop`. `onReady` is called when it is ready. Throws Problem, and the
 * reason of `stop` when that comes before the computer is set up.
 */
export async function runHost(
  config: ServiceConfig,
  progress: Progress,
  stop: AbortSignal,
  onReady: () => void,
): Promise<void> {
  const { home, isRoot, startPatienceMs } = config;
  if (!isRoot) throw new Problem('A host of a fleet runs as root: run this command as root');
  if (readIdentity(home) === undefined)
    throw new Problem(`${home} has not joined a fleet: run sandbar host join first (docs/fleet.md)`);
  assertNotRunning(home);
  const stopped = new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
  await Promise.race([setUpHost(config, progress), stopped]);
  if (stop.aborted) {
    await endChildren();
    throw stop.reason;
  }
  spareProcess(process.pid);

  const pidFile = homePaths(home).pidFile('supervisor');
  const holder = claimPidFile(pidFile);
  if (holder !== undefined) throw alreadyRunning(home, holder.pid);
  const report = (line: string) => progress.say(`  ! ${line}`);
  const backoff = { ...DEFAULT_BACKOFF, startWithinMs: startPatienceMs };
  const agent = new SupervisedProcess(hostAgentDefinition(config, undefined), report, backoff);
  try {
    assertRestored(home);
    await endLeftovers(home, report);
    await progress.step('host agent', () => Promise.race([agent.start(), stopped]));
    if (!stop.aborted) onReady();
    if (!stop.aborted) await stopped;
  } finally {
    await agent.stop();
    removePidFile(pidFile);
  }
}
