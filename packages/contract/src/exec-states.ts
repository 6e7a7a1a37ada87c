// The states of a job and what each allows. This file imports nothing, so the dashboard can use the tables without the
// library for schemas.

export const JOB_STATUSES = ['running', 'exited', 'timed_out', 'canceled', 'lost'] as const;
export type JobStatus = (typeof JOB_STATUSES)[number];

/**
 * The actions that a job allows in each state. Every state except `running` is final, so a cancel or a signal then
 * changes nothing (`noop`), and a write to stdin succeeds only if it repeats bytes that were accepted before
 * (`repeated`).
 */
export const JOB_STATE_TABLE: Record<
  JobStatus,
  { cancel: 'allowed' | 'noop'; signal: 'allowed' | 'noop'; stdin: 'allowed' | 'repeated' }
> = {
  running: { cancel: 'allowed', signal: 'allowed', stdin: 'allowed' },
  exited: { cancel: 'noop', signal: 'noop', stdin: 'repeated' },
  timed_out: { cancel: 'noop', signal: 'noop', stdin: 'repeated' },
  canceled: { cancel: 'noop', signal: 'noop', stdin: 'repeated' },
  lost: { cancel: 'noop', signal: 'noop', stdin: 'repeated' },
};

/** The signals that a client may send to a job. */
export const JOB_SIGNALS = ['INT', 'TERM', 'HUP', 'KILL', 'USR1', 'USR2', 'QUIT'] as const;
export type JobSignal = (typeof JOB_SIGNALS)[number];
