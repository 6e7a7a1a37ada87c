// Formats a job's state and times for people.
import type { JobStatus } from '@sandbar/contract/exec-states.ts';
import type { Tone } from '../../ui/badge.tsx';
import type { Job } from './job-queries.ts';

type End = Pick<Job, 'status' | 'exit_code' | 'signal'>;

const WORDS: Record<Exclude<JobStatus, 'exited'>, string> = {
  running: 'running',
  timed_out: 'timed out',
  canceled: 'cancelled',
  lost: 'lost',
};

/** Returns "exited 0", "killed by SIGTERM" or "timed out". */
export function statusWords({ status, exit_code, signal }: End): string {
  if (status !== 'exited') return WORDS[status];
  if (signal !== null) return `killed by ${signal}`;
  return exit_code === null ? 'exited' : `exited ${exit_code}`;
}

/** The end in one sentence; undefined while the job runs. */
export function endSentence({ status, exit_code, signal }: End): string | undefined {
  const by = signal === null ? '' : ` by ${signal}`;
  if (status === 'running') return undefined;
  if (status === 'lost') return 'The machine stopped or died while the job was running.';
  if (status === 'timed_out') return `The job reached its timeout and was ended${by}.`;
  if (status === 'canceled') return `The job was cancelled and ended${by}.`;
  if (signal !== null) return `The command was ended by ${signal}.`;
  return exit_code === null ? 'The command ended without an exit code.' : `The command ended with code ${exit_code}.`;
}

export function statusTone({ status, exit_code, signal }: End): Tone {
  if (status === 'running') return 'wait';
  if (status === 'canceled') return 'quiet';
  return status === 'exited' && signal === null && exit_code === 0 ? 'good' : 'bad';
}

/** "0.4 s", "12 s", "3 min 5 s", "2 h 10 min". */
export function formatDuration(ms: number): string {
  if (ms < 9_950) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
  const sec = Math.round(ms / 1000);
  if (sec < 60) return `${sec} s`;
  const min = Math.floor(sec / 60);
  return min < 60 ? `${min} min ${sec % 60} s` : `${Math.floor(min / 60)} h ${min % 60} min`;
}

/** How long the job took, or has taken until `now`, in milliseconds. */
export const runtimeMs = ({ created_at, finished_at }: Pick<Job, 'created_at' | 'finished_at'>, now: number): number =>
  (finished_at === null ? now : Date.parse(finished_at)) - Date.parse(created_at);
