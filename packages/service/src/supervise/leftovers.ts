// Ends the processes that a killed supervisor left behind. The control plane and the host agent end by themselves when
// their IPC channel closes; PostgreSQL does not. A process is ended only if it is certainly ours: its start time is the
// one in the pid file, and it runs our program. Machines go on running, and the next host agent takes them over.
import { readFileSync, rmSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { Problem } from '../problem.ts';
import { readPidFile, removePidFile } from './pid-file.ts';
import { commandLineOf, isAlive, type ProcessIdentity, startTimeOf } from './process-identity.ts';

type Leftover = {
  name: 'control-plane' | 'host-agent' | 'postgres';
  isOurs: (commandLine: readonly string[]) => boolean;
  signal: NodeJS.Signals;
};

/** The processes in the order in which they are ended: the control plane ends before the database that it uses. */
const LEFTOVERS: readonly Leftover[] = [
  { name: 'control-plane', isOurs: runsMainOf('control-plane'), signal: 'SIGTERM' },
  { name: 'host-agent', isOurs: runsMainOf('host-agent'), signal: 'SIGTERM' },
  { name: 'postgres', isOurs: isPostgres, signal: 'SIGINT' },
];

/** The time from the signal to SIGKILL, and from SIGKILL to giving up. */
const BOUND_MS = 10_000;

/** Ends these processes and removes their pid files. Throws Problem when a process does not end. */
export async function endLeftovers(home: string, report: (line: string) => void): Promise<void> {
  const paths = homePaths(home);
  for (const { name, isOurs, signal } of LEFTOVERS) {
    const file = paths.pidFile(name);
    const left = readPidFile(file);
    if (left !== undefined && isAlive(left) && isOurs(commandLineOf(left.pid))) {
      report(`ending the ${name} (pid ${left.pid}) that an earlier run left`);
      await endProcess(left, name, signal);
    }
    removePidFile(file);
  }
  removeStaleLock(`${paths.postgresData}/postmaster.pid`);
}

async function endProcess(left: ProcessIdentity, name: string, signal: NodeJS.Signals): Promise<void> {
  for (const step of [signal, 'SIGKILL'] as const) {
    if (isAlive(left)) process.kill(left.pid, step);
    for (const until = performance.now() + BOUND_MS; isAlive(left) && performance.now() < until; ) await delay(20);
    if (!isAlive(left)) return;
  }
  throw new Problem(`The ${name} of an earlier run (pid ${left.pid}) does not end: end it and run npm start again`);
}

/**
 * Deletes PostgreSQL's lock file when its process id now belongs to another program. After a crash the lock file names
 * a process that no longer exists. PostgreSQL replaces such a file itself, but not if the id is in use again. If the
 * process is a PostgreSQL, the file stays, and a second PostgreSQL refuses to start.
 */
function removeStaleLock(lockFile: string): void {
  let pid: number;
  try {
    pid = Number(readFileSync(lockFile, 'utf8').split('\n')[0]);
  } catch {
    return;
  }
  if (startTimeOf(pid) !== undefined && !isPostgres(commandLineOf(pid))) rmSync(lockFile, { force: true });
}

function runsMainOf(name: string) {
  return (commandLine: readonly string[]) => commandLine.some((arg) => arg.endsWith(`/packages/${name}/src/main.ts`));
}

function isPostgres(commandLine: readonly string[]): boolean {
  const [program = ''] = commandLine;
  // PostgreSQL's worker processes change their title to `postgres: ...`.
  return program.endsWith('/postgres') || program.startsWith('postgres:');
}
