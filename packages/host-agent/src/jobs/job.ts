// One exec job on the host. It stores the output that the guest sends in a spool file, wakes requests that wait for it,
// and keeps the job's record. The record says `running` until the job's end is stored, so that a restarted agent knows
// which jobs to continue.
import { EventEmitter, once } from 'node:events';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { OUTPUT_STREAMS, type OutputStream } from '@sandbar/contract/exec.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { Guest, GuestJob, JobFrame, StreamOffsets } from '../guest/guest.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';
import { JobSpool, readSmallSpool, readSpool } from './spool.ts';

const RECORD = 'job.json';
/**
 * The host acknowledges stored output after this many bytes, so that the guest can free it. When the job has ended, the
 * guest is told to forget the whole job instead.
 */
const ACKNOWLEDGE_BYTES = 256 * 1024;

export type OutputPage = { data: Buffer; nextOffset: number; totalBytes: number; eof: boolean };

/** Opens the stream of a job's frames at the given offsets. */
type OpenFrames = (offsets: StreamOffsets) => Promise<AsyncIterable<JobFrame>>;
/** Output is stored only while the disk has room. Otherwise the output stays in the guest. */
type Room = Pick<DiskRoom, 'whenThereIsRoom'>;

export class Job {
  readonly #dir: string;
  readonly #spool: JobSpool;
  readonly #changes = new EventEmitter<{ change: [] }>().setMaxListeners(0);
  #report: JobReport;
  #recorded: Promise<void> = Promise.resolve();
  /** The latest call of `follow`, whatever its outcome. */
  #following: Promise<void> = Promise.resolve();

  private constructor(dir: string, spool: JobSpool, report: JobReport) {
    this.#dir = dir;
    this.#spool = spool;
    this.#report = report;
  }

  /** Creates a job. Its record is on disk when this returns. `dir` must exist and be empty. */
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
      output_expired: false,
    };
    writeRecord(join(dir, RECORD), report);
    return new Job(dir, JobSpool.create(dir, limitBytes), report);
  }

  /**
   * Loads the job from its directory, running or ended. Returns undefined when the record is missing or was lost in a
   * crash.
   */
  static async load(dir: string, limitBytes: number): Promise<Job | undefined> {
    const report = readJobRecord(dir);
    return report && new Job(dir, await JobSpool.open(dir, limitBytes), report);
  }

  get id(): string {
    return this.#report.job_id;
  }

  /** Bytes of output on the disk. */
  get bytes(): number {
    return totalOf(this.#spool.sizes);
  }

  get isRunning(): boolean {
    return this.#report.status === 'running';
  }

  /**
   * Resolves when the record on disk says how the job ended. Only a full disk delays this. Requests that wait for the
   * job's end do not wait for the record.
   */
  get recorded(): Promise<void> {
    return this.#recorded;
  }

  get offsets(): { stdout: number; stderr: number } {
    return { ...this.#spool.sizes };
  }

  /**
   * Whether the job has ended and lost its output: a stream's file is shorter than the record says. So to drop output
   * it is enough to remove the files. No second write is needed that a crash or a full disk could prevent.
   */
  get isOutputExpired(): boolean {
    const { sizes } = this.#spool;
    return !this.isRunning && OUTPUT_STREAMS.some((stream) => sizes[stream] < this.#report[`${stream}_bytes`]);
  }

  report(): JobReport {
    if (!this.isRunning) return { ...this.#report, output_expired: this.isOutputExpired };
    return { ...this.#report, stdout_bytes: this.#spool.sizes.stdout, stderr_bytes: this.#spool.sizes.stderr };
  }

  /**
   * Stores the job's output until the job has ended. `open` opens the stream at the given offsets. Throws when the
   * stream breaks off before the end. The job is then still running, and another call neither loses nor repeats output.
   * A call waits for an earlier one, which may still be storing what it received before its session broke.
   */
  follow(open: OpenFrames, guest: Guest, room: Room): Promise<void> {
    const following = this.#following.then(() => this.#follow(open, guest, room));
    this.#following = following.catch(() => {});
    return following;
  }

  async #follow(open: OpenFrames, guest: Guest, room: Room): Promise<void> {
    if (!this.isRunning) return;
    const acknowledge = this.#acknowledger(guest);
    for await (const frame of await open(this.offsets)) {
      if (!this.isRunning) return;
      if (frame.type === 'end') return this.#end(frame.job, guest);
      await room.whenThereIsRoom();
      await this.#spool.write(frame.stream, frame.offset, frame.bytes);
      this.#changes.emit('change');
      acknowledge();
    }
  }

  /**
   * Returns a function that tells the guest how much output is stored. That function makes only one call to the guest
   * at a time, because calls would pile up in the host's memory if the guest never answered.
   */
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
          // The call failed. If the session goes on, the next output makes a new call.
          underWay = false;
        },
      );
    };
    return acknowledge;
  }

  /** Marks the job as lost, because the machine stopped or died. Output that is already stored stays readable. */
  async lose(): Promise<void> {
    if (!this.isRunning) return;
    // Closing the spool waits for a write that is under way, because that output still belongs to the job.
    await this.#spool.close();
    this.#finish({ status: 'lost', exit_code: null, signal: null, truncated: this.#report.truncated });
  }

  /** Call it when the agent ends. Stops storing output. The job itself goes on. */
  async release(): Promise<void> {
    await this.#spool.close();
  }

  /** Resolves with the job's report as soon as the job has ended, or after `waitMs`. */
  async waitForEnd(waitMs: number): Promise<JobReport> {
    await this.#waitUntil(() => !this.isRunning, waitMs);
    return this.report();
  }

  /**
   * Returns a page of output as soon as there is any, the job has ended, or `waitMs` is over. An offset past the end
   * gives an empty page. Throws `output_expired` when the output was dropped, even if that happened during this call.
   */
  async readOutput(stream: OutputStream, offset: number, limit: number, waitMs: number): Promise<OutputPage> {
    await this.#waitUntil(() => !this.isRunning || this.#spool.sizes[stream] > offset, waitMs);
    // Check for the end before reading the size: if the job ends in between, this page must not claim to be the last
    // one.
    const ended = !this.isRunning;
    if (this.isOutputExpired) throw outputExpired();
    const totalBytes = this.#spool.sizes[stream];
    const data = await readSpool(this.#dir, stream, offset, limit, totalBytes).catch((error: unknown) => {
      // A missing file means that the output was dropped just before this read opened the file.
      throw ended && isMissing(error) ? outputExpired() : error;
    });
    const nextOffset = offset + data.length;
    return { data, nextOffset, totalBytes, eof: ended && nextOffset >= totalBytes };
  }

  /**
   * Returns all output of an ended job. Returns undefined if the job runs, if its output was dropped, or if both streams
   * together have more than `limitBytes`.
   */
  readAll(limitBytes: number): Record<OutputStream, Buffer> | undefined {
    if (this.isRunning || this.bytes > limitBytes || this.isOutputExpired) return undefined;
    try {
      return { stdout: this.#readNow('stdout'), stderr: this.#readNow('stderr') };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  #readNow(stream: OutputStream): Buffer {
    return this.#spool.sizes[stream] === 0 ? Buffer.alloc(0) : readSmallSpool(this.#dir, stream);
  }

  async #end(job: GuestJob, guest: Guest): Promise<void> {
    this.#finish({
      status: job.status === 'running' ? 'exited' : job.status,
      exit_code: job.exitCode,
      signal: job.signal,
      truncated: job.truncated,
      ...(job.stdinBytes === null ? {} : { stdin_bytes: job.stdinBytes }),
    });
    this.#recorded.then(() => guest.forgetJob(this.#report.job_id)).catch(() => {});
    // Requests that wait for the job's end were woken before this, because every frame is already stored.
    await this.#spool.close();
  }

  #finish(outcome: Pick<JobReport, 'status' | 'exit_code' | 'signal' | 'truncated' | 'stdin_bytes'>): void {
    if (!this.isRunning) return;
    this.#report = { ...this.report(), ...outcome, finished_at: new Date().toISOString() };
    this.#recorded = persistWhenThereIsRoom(join(this.#dir, RECORD), this.#report);
    // Ignore an error here: perhaps nobody waits for the record, and it is not needed if the machine is destroyed
    // meanwhile.
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

/** Removes the output of an ended job, in its directory, and keeps its record. */
export async function dropOutput(dir: string): Promise<void> {
  for (const stream of OUTPUT_STREAMS) await rm(join(dir, stream), { force: true });
}

function outputExpired(): ServiceError {
  return new ServiceError('output_expired', 'the output of the job was dropped to stay under the limit of its machine');
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
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
