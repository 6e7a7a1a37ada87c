// The limits of a job. They are apart from the schemas of exec.ts because the command line needs the numbers only, and
// should not load the schema library for them.

/** Bytes, unless the name says otherwise. */
export const EXEC_BOUNDS = {
  /** Characters of a job's label. */
  nameLength: 255,
  /** Jobs that may run in one machine at the same time. The start of a further job is refused with 409. */
  concurrentJobs: 16,
  timeoutSecMax: 86_400,
  timeoutSecDefault: 3600,
  stdinBytes: 512 * 1024,
  /** How much one request may append to the open stdin of a job. */
  stdinAppendBytes: 1024 * 1024,
  waitMsMax: 60_000,
  pageBytesMax: 1024 * 1024,
  pageBytesDefault: 64 * 1024,
  /** How much output of each stream is kept; the host can be configured to keep another amount. */
  outputBytesDefault: 256 * 1024 * 1024,
  /**
   * How much output of ended jobs a machine keeps in all, and for how many ended jobs. When a limit is exceeded, the
   * host drops the output of the job that ended first. The host can be configured to keep other amounts.
   */
  keptBytesDefault: 1024 * 1024 * 1024,
  keptJobsDefault: 1000,
} as const;
