// Decides which ended jobs of a machine lose their output, so that an unlimited number of jobs cannot fill the host's
// disk. This class only counts; the job table removes the files.

/** Limits for one machine's ended jobs: total bytes of stored output, and number of jobs that have a record. */
export type KeptLimits = { bytes: number; jobs: number };

/** Jobs that exceed the limits: `emptied` lose their output, `forgotten` their record as well. */
export type Overdue = { emptied: string[]; forgotten: string[] };

export class KeptOutput {
  readonly #limits: KeptLimits;
  /** Bytes of output of each ended job that has a record, oldest end first. Undefined: the output was dropped. */
  readonly #bytes = new Map<string, number | undefined>();
  #total = 0;

  constructor(limits: KeptLimits) {
    this.#limits = limits;
  }

  /**
   * Adds a job that ended after all known jobs. Does nothing for a job that is known already. `bytes`: size of its
   * output; undefined if the output was dropped before.
   */
  add(jobId: string, bytes: number | undefined): void {
    if (this.#bytes.has(jobId)) return;
    this.#bytes.set(jobId, bytes);
    this.#total += bytes ?? 0;
  }

  /**
   * Returns the jobs that exceed the limits, oldest end first, and no longer counts what they lose. A job without
   * output is never emptied, because that would free nothing; it is only forgotten when there are too many newer jobs.
   */
  takeOverdue(): Overdue {
    const emptied: string[] = [];
    const forgotten: string[] = [];
    for (const [jobId, bytes = 0] of this.#bytes) {
      const isTooOld = this.#bytes.size > this.#limits.jobs;
      if (!isTooOld && this.#total <= this.#limits.bytes) break;
      if (!isTooOld && bytes === 0) continue;
      this.#total -= bytes;
      if (isTooOld) this.#bytes.delete(jobId);
      else this.#bytes.set(jobId, undefined);
      (isTooOld ? forgotten : emptied).push(jobId);
    }
    return { emptied, forgotten };
  }

  /**
   * Whether output may have been dropped. Forgotten jobs leave no trace, so this is also true when the machine has as
   * many ended jobs as the limit allows.
   */
  get hasDropped(): boolean {
    return this.#bytes.size >= this.#limits.jobs || [...this.#bytes.values()].includes(undefined);
  }

  /** Returns the ended jobs whose output is still stored. */
  jobIds(): string[] {
    return [...this.#bytes].flatMap(([jobId, bytes]) => (bytes === undefined ? [] : [jobId]));
  }
}
