// The bounds of a job, without the shapes: clients need the numbers, and a command line must not load a schema library.

/** Bounds of the specification (8.3) and of decisions.md. Bytes unless the name says otherwise. */
export const EXEC_BOUNDS = {
  /** Characters of a job's label. */
  nameLength: 255,
  /** Jobs that may run in one machine at once; the next is a 409. */
  concurrentJobs: 16,
  timeoutSecMax: 86_400,
  timeoutSecDefault: 3600,
  stdinBytes: 512 * 1024,
  waitMsMax: 60_000,
  pageBytesMax: 1024 * 1024,
  pageBytesDefault: 64 * 1024,
  /** Output kept of each stream; configurable on the host. */
  outputBytesDefault: 256 * 1024 * 1024,
} as const;
