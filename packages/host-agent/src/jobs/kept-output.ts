// Decides which ended jobs of a machine lose their output, so that jobs without number cannot fill the host's disk. It
// only keeps the books; the job table removes the files.

/** How much output of ended jobs a machine keeps: bytes in all, and jobs. */
export type KeptLimits = { bytes: number; jobs: number };

/** Jobs that are over the limits: `emptied` lose their output, `forgotten` their record as well. */
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
   * Adds a job that ended after all others. A job that is known already does not change. `bytes`: of its output;
   * undefined if that was dropped before.
   */
  add(jobId: string, bytes: number | undefined): void {
    if (this.#bytes.has(jobId)) return;
    this.#bytes.set(jobId, bytes);
    this.#total += bytes ?? 0;
  }

  /**
   * Returns the jobs that are over the limits, oldest end first, and takes them out of the books. A job without output
   * keeps its place until it is too old, because dropping nothing would free nothing.
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
   * Whether output was dropped. Nothing is left of the jobs that were too many, so it is also true when the machine has
   * as many jobs as it keeps.
   */
  get hasDropped(): boolean {
    return this.#bytes.size >= this.#limits.jobs || [...this.#bytes.values()].includes(undefined);
  }

  /** The ended jobs whose output is there. */
  jobIds(): string[] {
    return [...this.#bytes].flatMap(([jobId, bytes]) => (bytes === undefined ? [] : [jobId]));
  }
}
