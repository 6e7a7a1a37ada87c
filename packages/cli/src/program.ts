// Decides how `run` and `exec` run a command in a machine: as a job, or in a terminal.
import type { Client } from '@sandbar/sdk/client.ts';
import { inputOf, type JobOptions, jobOf, terminalOf } from './options.ts';
import { runJob } from './run-job.ts';
import { requireTerminal, runTerminal } from './run-terminal.ts';

/** Runs the command and resolves with its exit code. Rejects when `signal` is aborted. */
export type Program = (sandbar: Client, machineId: string, signal: AbortSignal) => Promise<number>;

/** Chooses how to run the command from the options. Throws UsageError. */
export function programOf(argv: string[], options: JobOptions, name: string | undefined): Program {
  if (options.tty) {
    requireTerminal();
    const request = terminalOf(argv, options, name);
    return (sandbar, machineId, signal) => runTerminal(sandbar, machineId, request, signal);
  }
  const job = jobOf(argv, options, name);
  const input = inputOf(options);
  return (sandbar, machineId, signal) => runJob(sandbar, machineId, job, signal, input);
}
