// Kills a child process of the agent that may run its program below bubblewrap.
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** How often the state of a process is read until the signal has stopped it: about ten milliseconds in all. */
const STOP_TRIES = 1000;

/**
 * Kills the process and its children, unless it has ended. In a jail the program is a child of the started process
 * (bubblewrap). If only bubblewrap were killed, the program would go on: bubblewrap has no right to end a program of
 * another uid, and asks the kernel to end the program together with itself only after it has prepared the mounts. The
 * process is stopped first, so that it starts no child meanwhile.
 */
export function endProcess(child: ChildProcess): void {
  const { pid } = child;
  if (pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGSTOP');
  for (let tries = 0; tries < STOP_TRIES && mayStartChildren(pid); tries++);
  try {
    for (const below of childrenOf(pid)) kill(below);
  } finally {
    child.kill('SIGKILL');
  }
}

/** Whether a process runs (R) or is in a system call that no signal interrupts (D), so that a signal to stop waits. */
function mayStartChildren(pid: number): boolean {
  const state = /^.*\) (\w)/s.exec(readIfAny(`/proc/${pid}/stat`))?.[1];
  return state === 'R' || state === 'D';
}

const childrenOf = (pid: number): number[] =>
  readIfAny(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean).map(Number);

/** Kills a process, unless it has ended. */
function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Reads a file of a process; an empty text if the process has ended. */
function readIfAny(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
