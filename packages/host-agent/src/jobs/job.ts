// One exec job on the host: follows its frames into the spool, tells who waits, and keeps its record. The record says
// `running` until the end frame was written down, so a restarted agent knows what to follow on.
import { EventEmitter, once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { Guest, GuestJob, JobFrame, StreamOffsets } from '../guest/guest.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';
import { JobSpool, readSpool } from './spool.ts';

const RECORD = 'job.json';
/** The guest may free what is safe here; told after this many bytes, and all at once when the job is forgotten. */
const ACKNOWLEDGE_BYTES = 256 * 1024;

export type OutputPage = { data: Buffer; nextOffset: number; totalBytes: number; eof: boolean };

export class Job {
  readonly #dir: string;
  readonly #spool: JobSpool;
  readonly #changes = new EventEmitter<{ change: [] }>().setMaxListeners(0);
  #report: JobReport;
  #recorded: Promise<void> = Promise.resolve();

  private constructor(dir: string, spool: JobSpool, report: JobReport) {
    this.#dir = dir;
    this.#spool = spool;
    this.#report = report;
  }

  /** A new job; its record is on disk when this returns. `dir` exists and is empty. */
  static create(dir: string, machineId: string, jobId: string, limitBytes: number): Job {
    const report: JobReport = {
      job_id: jobId,
      machine_id: machineId,
      status: 'running',
      exit_code: null,
      signal: null,
      stdout_bytes: 0,
      stderr_bytes: 0,
      truncated: false,
      finished_at: null,
    };
    writeRecord(join(dir, RECORD), report);
    return new Job(dir, JobSpool.create(dir, limitBytes), report);
  }

  /** The job that a directory holds, running or ended; undefined when its record is missing or was lost in a crash. */
  static async load(dir: string, limitBytes: number): Promise<Job | undefined> {
    const report = readJobRecord(dir);
    return report && new Job(dir, await JobSpool.open(dir, limitBytes), report);
  }

  get isRunning(): boolean {
    return this.#report.status === 'running';
  }

  /** Resolves when the record on disk says how the job ended; a full disk holds that back, and nothing else. */
  get recorded(): Promise<void> {
    return this.#recorded;
  }

  get offsets(): { stdout: number; stderr: number } {
    return { ...this.#spool.sizes };
  }

  report(): JobReport {
    if (!this.isRunning) return this.#report;
    return { ...this.#report, stdout_bytes: this.#spool.sizes.stdout, stderr_bytes: this.#spool.sizes.stderr };
  }

  /**
   * Writes down what comes until the job has ended. Throws when the stream breaks off first; the job is then still
   * running, and following it again from `offsets` loses and repeats nothing.
   */
  async follow(frames: AsyncIterable<JobFrame>, guest: Guest): Promise<void> {
    const acknowledge = this.#acknowledger(guest);
    for await (const frame of frames) {
      if (!this.isRunning) return;
      if (frame.type === 'end') return this.#end(frame.job, guest);
      await this.#spool.write(frame.stream, frame.offset, frame.bytes);
      this.#changes.emit('change');
      acknowledge();
    }
  }

  /** Tells the guest what is safe, one call at a time: a guest that never answers must not make the host keep thousands. */
  #acknowledger(guest: Guest): () => void {
    let told = totalOf(this.offsets);
    let underWay = false;
    const acknowledge = () => {
      const { offsets } = this;
      if (underWay || totalOf(offsets) - told < ACKNOWLEDGE_BYTES) return;
      underWay = true;
      told = totalOf(offsets);
      guest.acknowledgeOutput(this.#report.job_id, offsets).then(
        () => {
          underWay = false;
          acknowledge();
        },
        () => {
          // Told again with the next bytes, should the session go on.
          underWay = false;
        },
      );
    };
    return acknowledge;
  }

  /** The machine stopped or died under the job; what was written down stays readable. */
  async lose(): Promise<void> {
    if (!this.isRunning) return;
    // What is being written down still counts.
    await this.#spool.close();
    this.#finish({ status: 'lost', exit_code: null, signal: null, truncated: this.#report.truncated });
  }

  /** The agent ends, the job goes on: nothing more is written down. */
  async release(): Promise<void> {
    await this.#spool.close();
  }

  /** Resolves with the report when the job has ended or the time is over. */
  async waitForEnd(waitMs: number): Promise<JobReport> {
    await this.#waitUntil(() => !this.isRunning, waitMs);
    return this.report();
  }

  /** A page of output, as soon as there is any, or the end, or the time is over. An offset past the end is empty. */
  async readOutput(stream: OutputStream, offset: number, limit: number, waitMs: number): Promise<OutputPage> {
    await this.#waitUntil(() => !this.isRunning || this.#spool.sizes[stream] > offset, waitMs);
    // Asked in this order: a job that ends while the page is read has not yet reached its end for this page.
    const ended = !this.isRunning;
    const totalBytes = this.#spool.sizes[stream];
    const data = await readSpool(this.#dir, stream, offset, limit, totalBytes);
    const nextOffset = offset + data.length;
    return { data, nextOffset, totalBytes, eof: ended && nextOffset >= totalBytes };
  }

  async #end(job: GuestJob, guest: Guest): Promise<void> {
    this.#finish({
      status: job.status === 'running' ? 'exited' : job.status,
      exit_code: job.exitCode,
      signal: job.signal,
      truncated: job.truncated,
    });
    this.#recorded.then(() => guest.forgetJob(this.#report.job_id)).catch(() => {});
    // Who waits need not wait for this: the frames were written down one by one.
    await this.#spool.close();
  }

  #finish(outcome: Pick<JobReport, 'status' | 'exit_code' | 'signal' | 'truncated'>): void {
    if (!this.isRunning) return;
    this.#report = { ...this.report(), ...outcome, finished_at: new Date().toISOString() };
    this.#recorded = persistWhenThereIsRoom(join(this.#dir, RECORD), this.#report);
    // Nobody may be waiting for it, and a record whose machine is destroyed meanwhile is no loss.
    this.#recorded.catch(() => {});
    this.#changes.emit('change');
  }

  async #waitUntil(isTrue: () => boolean, waitMs: number): Promise<void> {
    const timeout = AbortSignal.timeout(waitMs);
    while (waitMs > 0 && !isTrue() && !timeout.aborted) {
      await once(this.#changes, 'change', { signal: timeout }).catch(() => {});
    }
  }
}

async function persistWhenThereIsRoom(path: string, report: JobReport): Promise<void> {
  for (;;) {
    try {
      return writeRecord(path, report);
    } catch (error) {
      if ((error as { code?: string }).code !== 'fleet_capacity') throw error;
      await delay(1000, undefined, { ref: false });
    }
  }
}

function totalOf(offsets: StreamOffsets): number {
  return offsets.stdout + offsets.stderr;
}

function readJobRecord(dir: string): JobReport | undefined {
  try {
    return readRecord<JobReport>(join(dir, RECORD));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
