// The exec jobs of one machine: starts them in the guest and follows their output, also when the session with the guest breaks
// or the agent restarts. Ended jobs are on disk only.
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
  /** `<machine>/jobs`, one directory a job. */
  dir: string;
  outputLimitBytes: number;
  onEnd: (report: JobReport) => void;
  /** Called when it is unknown whether a job started: the session must be opened anew, and the guest then lists its jobs. */
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

  /** Finds the jobs that were running when an earlier agent ended. */
  async load(): Promise<void> {
    mkdirSync(this.#options.dir, { recursive: true, mode: 0o700 });
    for (const jobId of readdirSync(this.#options.dir)) {
      const job = await Job.load(join(this.#options.dir, jobId), this.#options.outputLimitBytes);
      if (job?.isRunning) this.#running.set(jobId, job);
    }
  }

  /**
   * Starts a job. For an id that was used before it reports that job and starts nothing. Throws what the guest refuses with.
   * When the session breaks, so that it is unknown whether the job started, the job counts as running until the next session.
   */
  start(jobId: string, spec: JobSpec, guest: Guest): Promise<JobReport> {
    const starting = this.#starting.get(jobId) ?? this.#start(jobId, spec, guest);
    this.#starting.set(jobId, starting);
    return starting.finally(() => this.#starting.delete(jobId));
  }

  /** The job, running or ended. Throws `not_found`. */
  async get(jobId: string): Promise<Job> {
    const job =
      this.#inMemory(jobId) ?? (await Job.load(join(this.#options.dir, jobId), this.#options.outputLimitBytes));
    if (!job) throw new ServiceError('not_found', `the host has no job ${jobId}`);
    return job;
  }

  runningReports(): JobReport[] {
    return [...this.#running.values()].map((job) => job.report());
  }

  /** For a new session: follows each running job from where its spool ends. Jobs that the guest does not know are lost. */
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
    // The rest are jobs whose end is on disk already, but the guest has not been told to forget them.
    for (const [jobId, job] of known) {
      if (job.status !== 'running' && !this.#unrecorded.has(jobId))
        guest.forgetJob(jobId).catch((error) => this.#options.onError(error, jobId));
    }
  }

  /** Marks all running jobs as lost, because their VM is gone. Its session is closed, so no other job starts meanwhile. */
  async loseAll(): Promise<void> {
    await Promise.allSettled(this.#starting.values());
    for (const [jobId, job] of this.#running) await this.#lose(jobId, job);
  }

  /** For the end of the agent: lets go of the jobs, which go on in their machine. */
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
      // Only a refusal proves that the job does not run. Otherwise it stays in the table until a new session tells.
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
      // The job was marked as lost meanwhile, so it is no error that its stream ended.
      if (!this.#running.has(jobId)) return;
      this.#options.onError(error, jobId);
      if (error instanceof GuestProtocolError || error instanceof ServiceError) {
        // The guest broke the protocol for this job, so the job is given up. Other jobs of the machine are still followed.
        guest.cancelJob(jobId).catch(() => {});
        await this.#lose(jobId, job);
      } else {
        // The session broke. The next session follows the job from here.
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
