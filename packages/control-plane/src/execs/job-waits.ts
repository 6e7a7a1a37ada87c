// What requests wait for: the end of a job, or more of its output. The requests of this replica that wait for the same
// thing share one call to the host, one record of the end in the database, and one encoded page.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { JobAnswer } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { ExecRow } from '../db/tables.ts';
import { HostUnavailable, type OutputQuery } from '../hosts/client.ts';
import { Gate } from './gate.ts';
import { type OutputTarget, readPageOfOutput, writePage } from './output.ts';
import { settleJob } from './settle.ts';
import { type SharedCall, SharedWaits } from './shared-waits.ts';
import { findExec } from './store.ts';

/** The host's latest report of a job. `row`: records the end of the job, if it has ended, and returns its row. */
export type ReportedJob = { report: JobAnswer; row(): Promise<ExecRow> };

/** How many requests that wait may read the database, or be answered, at the same time. */
const AT_WORK = 4;

type Page = { bytes: number; isOver: boolean; body(): Buffer };

export class JobWaits {
  readonly #app: App;
  readonly #ends: SharedWaits<ReportedJob | undefined>;
  readonly #pages: SharedWaits<Page>;
  readonly #gate = new Gate(AT_WORK);

  constructor(app: App) {
    this.#app = app;
    this.#ends = new SharedWaits(app.closing);
    this.#pages = new SharedWaits(app.closing);
  }

  /** Looks a job up for a request that will wait up to `waitMs` milliseconds. Throws the errors of `find`. */
  async find<T>(accountId: string, waitMs: number, find: () => Promise<T>): Promise<T> {
    return waitMs === 0 ? find() : this.#gate.run(accountId, find);
  }

  /**
   * Waits up to `waitMs` milliseconds for the end of a job. Returns undefined if the host does not know the job or does
   * not answer, or if `signal` is aborted. `outputLimit`: see `HostClient.getJob`.
   */
  async end(
    exec: ExecRow,
    hostId: string,
    waitMs: number,
    signal: AbortSignal,
    outputLimit?: number,
  ): Promise<ReportedJob | undefined> {
    const app = this.#app;
    const ask = async (waitMs: number, signal: AbortSignal) => {
      const report = await app.hosts.client(hostId).getJob(exec.machine_id, exec.id, waitMs, signal, outputLimit);
      return report && reported(app, exec, report);
    };
    const isOver = (job: ReportedJob | undefined) => job?.report.status !== 'running';
    const key = `${exec.machine_id} ${exec.id} ${outputLimit}`;
    try {
      // A request that does not wait must not get an answer that was given before it arrived, so it asks by itself.
      return await (waitMs === 0 ? ask(0, signal) : this.#wait(this.#ends, { key, ask, isOver }, exec, waitMs, signal));
    } catch (error) {
      if (error instanceof HostUnavailable || signal.aborted) return undefined;
      throw error;
    }
  }

  /**
   * Returns the JSON text of a page of output, as soon as there are new bytes, the job has ended, the time limit of the
   * query has passed or the service shuts down. Throws the errors of `readPageOfOutput`. When `signal` is aborted,
   * throws its reason if that is a ServiceError, else `host_unavailable`.
   */
  async page(target: OutputTarget, query: Omit<OutputQuery, 'stream'>, signal: AbortSignal): Promise<Buffer> {
    const { exec, stream } = target;
    const { offset, limit, waitMs } = query;
    const ask = async (waitMs: number, signal: AbortSignal): Promise<Page> => {
      const page = await readPageOfOutput(this.#app, target, { offset, limit, waitMs }, signal);
      let body: Buffer | undefined;
      return {
        bytes: page.bytes.length,
        isOver: page.bytes.length > 0 || page.eof,
        body: () => {
          body ??= writePage(target, offset, page);
          return body;
        },
      };
    };
    // The status is part of the key, because the answer depends on it when the host has no output of the job.
    const key = `${exec.machine_id} ${exec.id} ${exec.status} ${stream} ${offset} ${limit}`;
    const shared = { key, ask, isOver: (page: Page) => page.isOver };
    try {
      const page = await (waitMs === 0 ? ask(0, signal) : this.#wait(this.#pages, shared, exec, waitMs, signal));
      this.#app.metrics.outputBytes.inc({ form: 'page' }, page.bytes);
      return page.body();
    } catch (error) {
      const isEndedEarly = this.#app.closing.aborted && (!signal.aborted || signal.reason === this.#app.closing.reason);
      if (isEndedEarly && waitMs > 0) return (await ask(0, this.#app.cutoff)).body();
      if (!signal.aborted) throw error;
      throw signal.reason instanceof ServiceError ? signal.reason : new HostUnavailable(true, signal.reason);
    }
  }

  async #wait<T>(
    waits: SharedWaits<T>,
    shared: SharedCall<T>,
    { account_id: accountId }: ExecRow,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<T> {
    const answer = await waits.wait(shared, waitMs, signal);
    return this.#gate.run(accountId, () => answer);
  }
}

/** The row of an ended job is recorded and read once, however many requests ask for it. */
export function reported(app: App, exec: ExecRow, report: JobAnswer): ReportedJob {
  let row: Promise<ExecRow> | undefined;
  return {
    report,
    row: () => {
      row ??= recordedRow(app, exec, report);
      return row;
    },
  };
}

async function recordedRow(app: App, exec: ExecRow, report: JobAnswer): Promise<ExecRow> {
  if (report.status === 'running') return exec;
  const settled = await settleJob(app.db, report);
  // Another caller (the event listener or the reconciler) may have recorded the end already, so read the row again.
  return settled ?? (await findExec(app, exec.account_id, exec.machine_id, exec.id)).exec;
}
