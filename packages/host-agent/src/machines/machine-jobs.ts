// Runs the jobs of one machine: checks that the machine can take a job now, and adds the image's defaults to the job.
// The job table handles the output and the end of each job.
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostKeptOutput, JobReport, StartJob } from '@sandbar/contract/host-api.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import type { Guest } from '../guest/guest.ts';
import { withImageDefaults } from '../images/image-exec.ts';
import type { Job } from '../jobs/job.ts';
import { JobTable } from '../jobs/job-table.ts';
import type { MachineHost } from './machine-host.ts';
import type { MachineVm } from './machine-vm.ts';
import type { RecordBook } from './record-book.ts';

export class MachineJobs {
  readonly #book: RecordBook;
  readonly #vm: MachineVm;
  readonly #table: JobTable;
  readonly #tracing: Tracing;

  constructor(machineId: string, host: MachineHost, book: RecordBook, vm: MachineVm) {
    this.#book = book;
    this.#vm = vm;
    this.#tracing = host.tracing;
    this.#table = new JobTable({
      machineId,
      dir: join(host.machinesDir, machineId, 'jobs'),
      outputLimitBytes: host.outputLimitBytes,
      keptOutput: host.keptOutput,
      room: host.room,
      onEnd: (report) => host.onJobEnd(report),
      onDoubt: () => vm.renewSession(),
      onError: (err, jobId) =>
        host.log.warn({ machine_id: machineId, job_id: jobId, err }, 'a job could not be followed'),
    });
  }

  /** Makes the folder of the jobs of a new machine. */
  begin(): void {
    this.#table.begin();
  }

  /** Loads the jobs that were still running when the previous agent ended. */
  load(): Promise<void> {
    return this.#table.load();
  }

  /**
   * Starts a job, see {@link JobTable.start}. Throws `conflict` when the machine does not run, or when it was booted
   * after `generation`, because the job was then meant for an earlier boot.
   */
  async start(jobId: string, { generation, ...spec }: StartJob): Promise<Job> {
    const link = this.#vm.link();
    const guest = await link.guest();
    // No other code runs from here until the job is in the job table. So when the machine ends, the table knows this
    // job and marks it as lost.
    if (!this.#vm.isCurrent(link)) throw this.#vm.notRunning();
    const { bootGeneration, image } = this.#book.record;
    if (generation < bootGeneration)
      throw new ServiceError(
        'conflict',
        'The machine was stopped or changed since the command was sent. Send it again.',
      );
    return this.#tracing.span('guest.job', {}, () =>
      this.#table.start(jobId, withImageDefaults(spec, image.exec), guest),
    );
  }

  /**
   * Cancels a job. Does nothing when it has ended. Throws `not_found`, and `conflict` when the machine does not run.
   */
  async cancel(jobId: string): Promise<JobReport> {
    await this.#table.whenStarted(jobId);
    const job = await this.#table.get(jobId);
    if (!job.isRunning) return job.report();
    const guest = await this.#vm.findGuest();
    await guest.cancelJob(jobId).catch((error) => {
      // If the job ended by itself in the meantime, the guest has forgotten it, and the error does not matter.
      if (job.isRunning) throw error;
    });
    return job.report();
  }

  /** Returns the job, running or ended. Throws `not_found`. */
  get(jobId: string): Promise<Job> {
    return this.#table.get(jobId);
  }

  running(): JobReport[] {
    return this.#table.runningReports();
  }

  keptOutput(): HostKeptOutput {
    return this.#table.keptOutput();
  }

  get outputRevision(): string | null {
    return this.#table.outputRevision;
  }

  /** Call it at the start of each session with the guest, see {@link JobTable.resume}. */
  resume(guest: Guest): Promise<void> {
    return this.#table.resume(guest);
  }

  /** Call it when the VM is gone. */
  loseAll(): Promise<void> {
    return this.#table.loseAll();
  }

  /** Call it when the agent ends. */
  release(): Promise<void> {
    return this.#table.release();
  }
}
