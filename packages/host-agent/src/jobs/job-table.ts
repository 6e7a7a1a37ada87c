// Manages the exec jobs of one machine: starts them in the guest and stores their output, even when the session with
// the guest breaks or the agent restarts. Only running jobs are in memory. Ended jobs are read from disk.
import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostKeptOutput, JobReport } from '@sandbar/contract/host-api.ts';
import type { Guest, JobFrame, JobSpec, StreamOffsets } from '../guest/guest.ts';
import { GuestProtocolError } from '../guest/guest-protocol-error.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { dropOutput, Job } from './job.ts';
import { type KeptLimits, KeptOutput } from './kept-output.ts';

export type JobTableOptions = {
  machineId: string;
  /** The directory `<machine>/jobs`. It has one directory for each job. */
  dir: string;
  outputLimitBytes: number;
  keptOutput: KeptLimits;
  /** Output is stored only while the disk has room. Otherwise the output stays in the guest. */
  room: Pick<DiskRoom, 'whenThereIsRoom'>;
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
  readonly #starting = new Map<string, Promise<Job>>();
  /** Ended jobs whose record on disk still says `running`, because the disk is full. */
  readonly #unrecorded = new Map<string, Job>();
  readonly #kept: KeptOutput;
  #revision: string | null = null;

  constructor(options: JobTableOptions) {
    this.#options = options;
    this.#kept = new KeptOutput(options.keptOutput);
  }

  /** Makes the folder for the jobs of a new machine. Such a machine has no jobs, so {@link load} is not needed. */
  begin(): void {
    mkdirSync(this.#options.dir, { mode: 0o700 });
  }

  /**
   * Loads the jobs that were still running when the previous agent ended, and counts the stored output of ended jobs.
   * Completes removals that a crash interrupted.
   */
  async load(): Promise<void> {
    const { dir, outputLimitBytes } = this.#options;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const ended: Job[] = [];
    for (const jobId of readdirSync(dir)) {
      const job = await Job.load(join(dir, jobId), outputLimitBytes);
      if (!job) await rm(join(dir, jobId), { recursive: true, force: true });
      else if (job.isRunning) this.#running.set(jobId, job);
      else ended.push(job);
    }
    ended.sort((a, b) => ((a.report().finished_at ?? '') < (b.report().finished_at ?? '') ? -1 : 1));
    for (const job of ended) {
      if (job.isOutputExpired) await dropOutput(join(dir, job.id));
      this.#kept.add(job.id, job.isOutputExpired ? undefined : job.bytes);
    }
    if (this.#kept.hasDropped) this.#revision = randomUUID();
    await this.#dropOverdue();
  }

  /** An opaque text that changes whenever output of ended jobs is dropped. Null while no output was dropped. */
  get outputRevision(): string | null {
    return this.#revision;
  }

  /** The jobs whose output can be read, as of now. */
  keptOutput(): HostKeptOutput {
    const job_ids = [...this.#running.keys(), ...this.#unrecorded.keys(), ...this.#kept.jobIds()];
    return { output_revision: this.#revision, job_ids };
  }

  /**
   * Starts a job. If a job with this id exists, it only returns that job. Throws the guest's error when
   * the guest refuses the job. If the session breaks and it is unknown whether the job started, the job counts as
   * running until the next session.
   */
  start(jobId: string, spec: JobSpec, guest: Guest): Promise<Job> {
    const starting = this.#starting.get(jobId) ?? this.#start(jobId, spec, guest);
    this.#starting.set(jobId, starting);
    return starting.finally(() => this.#starting.delete(jobId));
  }

  /** Resolves when no start of this job is under way. Only then the guest knows the job. */
  async whenStarted(jobId: string): Promise<void> {
    await this.#starting.get(jobId)?.catch(() => {});
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
      void this.#follow(jobId, job, (offsets) => guest.followJob(jobId, offsets), guest);
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

  async #start(jobId: string, spec: JobSpec, guest: Guest): Promise<Job> {
    const dir = join(this.#options.dir, jobId);
    const known = this.#inMemory(jobId) ?? (await Job.load(dir, this.#options.outputLimitBytes));
    if (known) return known;
    try {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      const job = Job.create(dir, this.#options.machineId, jobId, this.#options.outputLimitBytes);
      this.#running.set(jobId, job);
      const frames = await guest.startJob(jobId, spec, this.#options.outputLimitBytes);
      void this.#follow(jobId, job, () => Promise.resolve(frames), guest);
      return job;
    } catch (error) {
      const job = this.#running.get(jobId);
      // Only a refusal of the guest proves that the job did not start. After other errors the job stays in the table
      // until the next session.
      if (job && !(error instanceof ServiceError)) {
        this.#options.onError(error, jobId);
        this.#options.onDoubt();
        return job;
      }
      this.#running.delete(jobId);
      rmSync(dir, { recursive: true, force: true });
      throw isDiskFull(error) ? diskFull(error) : error;
    }
  }

  async #follow(
    jobId: string,
    job: Job,
    open: (offsets: StreamOffsets) => Promise<AsyncIterable<JobFrame>>,
    guest: Guest,
  ): Promise<void> {
    try {
      await job.follow(open, guest, this.#options.room);
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
    // Wait until the record on disk says how the job ended, and only then count its output, which may be dropped at
    // once. A client can still read the record after the output was dropped. If the machine is destroyed meanwhile, the
    // record cannot be written, and no output is left to count.
    const keep = () => {
      this.#unrecorded.delete(jobId);
      this.#kept.add(jobId, job.bytes);
      return this.#dropOverdue();
    };
    job.recorded.then(keep, () => this.#unrecorded.delete(jobId)).catch((error) => this.#options.onError(error, jobId));
    this.#options.onEnd(job.report());
  }

  /**
   * Removes output and jobs that exceed the limits. The counts in memory change first, and synchronously, so a report
   * never names a job as kept while its files are being removed. If a crash interrupts the removal, the next
   * {@link load} completes it.
   */
  async #dropOverdue(): Promise<void> {
    const { emptied, forgotten } = this.#kept.takeOverdue();
    if (emptied.length + forgotten.length > 0) this.#revision = randomUUID();
    const { dir } = this.#options;
    for (const jobId of emptied) await dropOutput(join(dir, jobId));
    for (const jobId of forgotten) await rm(join(dir, jobId), { recursive: true, force: true });
  }

  #inMemory(jobId: string): Job | undefined {
    return this.#running.get(jobId) ?? this.#unrecorded.get(jobId);
  }
}
