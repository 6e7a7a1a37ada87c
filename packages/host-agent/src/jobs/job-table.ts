// Manages the exec jobs of one machine: starts them in the guest and stores their output, even when the session with
// the guest breaks or the agent restarts. Only running jobs are in memory. Ended jobs are read from disk.
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import { GuestProtocolError } from '../guest/frames.ts';
import type { Guest, JobFrame, JobSpec } from '../guest/guest.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { Job } from './job.ts';

export type JobTableOptions = {
  machineId: string;
  /** The directory `<machine>/jobs`. It has one directory for each job. */
  dir: string;
  outputLimitBytes: number;
  onEnd: (report: JobReport) => void;
  /**
   * Called when it is unknown whether a job started. The machine must then open a new session, in which the guest lists
   * its jobs.
   */
  onDoubt: () => void;
  onError: (error: unknown, jobId: string) => void;
};

export class JobTable {
  readonly #options: JobTableOptions;
  readonly #running = new Map<string, Job>();
  readonly #starting = new Map<string, Promise<JobReport>>();
  /** Ended jobs whose record on disk still says `running`, because the disk is full. */
  readonly #unrecorded = new Map<string, Job>();

  constructor(options: JobTableOptions) {
    this.#options = options;
  }

  /** Loads the jobs that were still running when the previous agent ended. */
  async load(): Promise<void> {
    mkdirSync(this.#options.dir, { recursive: true, mode: 0o700 });
    for (const jobId of readdirSync(this.#options.dir)) {
      const job = await Job.load(join(this.#options.dir, jobId), this.#options.outputLimitBytes);
      if (job?.isRunning) this.#running.set(jobId, job);
    }
  }

  /**
   * Starts a job. If a job with this id exists, it only returns the report of that job. Throws the guest's error when
   * the guest refuses the job. If the session breaks and it is unknown whether the job started, the job counts as
   * running until the next session.
   */
  start(jobId: string, spec: JobSpec, guest: Guest): Promise<JobReport> {
    const starting = this.#starting.get(jobId) ?? this.#start(jobId, spec, guest);
    this.#starting.set(jobId, starting);
    return starting.finally(() => this.#starting.delete(jobId));
  }

  /** Returns the job, running or ended. Throws `not_found`. */
  async get(jobId: string): Promise<Job> {
    const job =
      this.#inMemory(jobId) ?? (await Job.load(join(this.#options.dir, jobId), this.#options.outputLimitBytes));
    if (!job) throw new ServiceError('not_found', `the host has no job ${jobId}`);
    return job;
  }

  runningReports(): JobReport[] {
    return [...this.#running.values()].map((job) => job.report());
  }

  /**
   * Call it when a new session is open. Continues each running job's output where the stored output ends. Marks jobs as
   * lost that the guest does not know.
   */
  async resume(guest: Guest): Promise<void> {
    const known = new Map((await guest.listJobs()).map((job) => [job.id, job]));
    for (const [jobId, job] of this.#running) {
      if (this.#starting.has(jobId)) continue;
      if (!known.delete(jobId)) {
        await this.#lose(jobId, job);
        continue;
      }
      void this.#follow(jobId, job, guest.followJob(jobId, job.offsets), guest);
    }
    // The jobs that are left over have ended, and their end is on disk. Tell the guest to forget them.
    for (const [jobId, job] of known) {
      if (job.status !== 'running' && !this.#unrecorded.has(jobId))
        guest.forgetJob(jobId).catch((error) => this.#options.onError(error, jobId));
    }
  }

  /**
   * Marks all running jobs as lost, because their VM is gone. The session is closed already, so no other job can start
   * meanwhile.
   */
  async loseAll(): Promise<void> {
    await Promise.allSettled(this.#starting.values());
    for (const [jobId, job] of this.#running) await this.#lose(jobId, job);
  }

  /** Call it when the agent ends. Stops storing output. The jobs go on in the machine. */
  async release(): Promise<void> {
    await Promise.all([...this.#running.values()].map((job) => job.release()));
  }

  async #start(jobId: string, spec: JobSpec, guest: Guest): Promise<JobReport> {
    const dir = join(this.#options.dir, jobId);
    const known = this.#inMemory(jobId) ?? (await Job.load(dir, this.#options.outputLimitBytes));
    if (known) return known.report();
    try {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      const job = Job.create(dir, this.#options.machineId, jobId, this.#options.outputLimitBytes);
      this.#running.set(jobId, job);
      const frames = await guest.startJob(jobId, spec, this.#options.outputLimitBytes);
      void this.#follow(jobId, job, Promise.resolve(frames), guest);
      return job.report();
    } catch (error) {
      const job = this.#running.get(jobId);
      // Only a refusal of the guest proves that the job did not start. After other errors the job stays in the table
      // until the next session.
      if (job && !(error instanceof ServiceError)) {
        this.#options.onError(error, jobId);
        this.#options.onDoubt();
        return job.report();
      }
      this.#running.delete(jobId);
      rmSync(dir, { recursive: true, force: true });
      throw isDiskFull(error) ? diskFull(error) : error;
    }
  }

  async #follow(jobId: string, job: Job, frames: Promise<AsyncIterable<JobFrame>>, guest: Guest): Promise<void> {
    try {
      await job.follow(await frames, guest);
      this.#ended(jobId, job);
    } catch (error) {
      // The job was marked as lost in the meantime, so the end of its stream is no error.
      if (!this.#running.has(jobId)) return;
      this.#options.onError(error, jobId);
      if (error instanceof GuestProtocolError || error instanceof ServiceError) {
        // The guest broke the protocol for this job, so give up this job. The machine's other jobs go on.
        guest.cancelJob(jobId).catch(() => {});
        await this.#lose(jobId, job);
      } else {
        // The session broke. The next session continues the job's output where it stopped.
        guest.close();
      }
    }
  }

  async #lose(jobId: string, job: Job): Promise<void> {
    await job.lose();
    this.#ended(jobId, job);
  }

  #ended(jobId: string, job: Job): void {
    if (job.isRunning || !this.#running.delete(jobId)) return;
    this.#unrecorded.set(jobId, job);
    const forget = () => this.#unrecorded.delete(jobId);
    job.recorded.then(forget, forget);
    this.#options.onEnd(job.report());
  }

  #inMemory(jobId: string): Job | undefined {
    return this.#running.get(jobId) ?? this.#unrecorded.get(jobId);
  }
}
