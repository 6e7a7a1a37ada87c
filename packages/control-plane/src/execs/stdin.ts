// Appends to the open stdin of a running job. The guest counts what it has accepted, so a request may be repeated at
// any layer and after any failure without writing a byte twice. Here the bytes are sent to the guest in pieces, and the
// requests for one job wait for each other, so that a job that reads nothing fills neither the guest's memory nor its
// places for calls.
import { setTimeout as delay } from 'node:timers/promises';
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { ExecStdin } from '@sandbar/contract/exec.ts';
import { JOB_STATE_TABLE } from '@sandbar/contract/exec-states.ts';
import type { App } from '../app.ts';
import type { ExecRow } from '../db/tables.ts';
import { callGuest } from '../guest/call.ts';
import { Places } from '../http/places.ts';
import type { Caller } from '../http/route-config.ts';
import { settleJob } from './settle.ts';
import { actOnStartedJob } from './started-job.ts';
import { type FoundExec, findExec } from './store.ts';

/** How much one guest call brings. The guest holds it in memory, once as base64, while it waits for the command. */
const PIECE_BYTES = 128 * 1024;
/** How long one guest call waits for the command to read. Short, so that a wait ends soon when the service stops. */
const STEP_MS = 1_000;
/** How many requests of an account may wait at once on a replica. Each may hold 1 MiB. */
const WAITING_MOST = 64;

export type Append = {
  machineId: string;
  execId: string;
  offset: number;
  bytes: Buffer;
  close: boolean;
};

/**
 * The requests for one job. `idle` resolves when the last of them has ended. `nextOffset` is the latest answer of the
 * guest; it only grows, so bytes before it need not be sent to the guest again.
 */
type Queue = { idle: Promise<void>; nextOffset: number };

export class StdinWriter {
  readonly #app: App;
  readonly #places = new Places(WAITING_MOST, 'requests that write to stdin');
  /** The jobs with a request under way, by `machine id/job id`. */
  readonly #queues = new Map<string, Queue>();

  constructor(app: App) {
    this.#app = app;
  }

  /**
   * Appends bytes to the stdin of a job, and closes it after them if `close` is true. Skips the bytes that were
   * accepted before. Waits up to 30 s while the command does not read, then returns what was accepted. For a job that
   * has ended, returns what it had accepted if there is nothing new in the request. Throws `not_found`, `rate_limited`,
   * `host_unavailable`, and `conflict` when bytes are missing before the offset or the job takes no more. `gone` is
   * aborted when nobody waits for the answer.
   */
  async append(caller: Caller, request: Append, gone: AbortSignal): Promise<ExecStdin> {
    const { machineId, execId } = request;
    const found = await findExec(this.#app, caller.accountId, machineId, execId);
    if (JOB_STATE_TABLE[found.exec.status].stdin === 'repeated') return this.#answerEnded(found, request);
    const leave = this.#places.take(caller.accountId);
    const deadline = performance.now() + this.#app.config.timing.stdinWaitMs;
    try {
      const { machine_id, id } = found.exec;
      const answer = await actOnStartedJob(this.#app, found, () =>
        this.#inTurn(`${machine_id}/${id}`, deadline, gone, (queue) =>
          this.#send(caller, found.exec, request, queue, deadline, gone),
        ),
      );
      return answer ?? (await this.#answerEnded(found, request));
    } finally {
      leave();
    }
  }

  /**
   * Runs `work` after the earlier requests for the job have ended, or at the deadline. The guest decides what happens
   * then: it also lets only one request write.
   */
  async #inTurn<T>(job: string, deadline: number, gone: AbortSignal, work: (queue: Queue) => Promise<T>): Promise<T> {
    const queue = this.#queues.get(job) ?? { idle: Promise.resolve(), nextOffset: 0 };
    this.#queues.set(job, queue);
    const before = queue.idle;
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const idle = before.then(() => over);
    queue.idle = idle;
    void idle.then(() => {
      if (queue.idle === idle) this.#queues.delete(job);
    });
    try {
      await settledOrOver(before, deadline, gone);
      return await work(queue);
    } finally {
      end();
    }
  }

  async #send(
    caller: Caller,
    exec: ExecRow,
    { offset, bytes, close }: Append,
    queue: Queue,
    deadline: number,
    gone: AbortSignal,
  ): Promise<ExecStdin> {
    let accepted = Math.min(bytes.length, Math.max(0, queue.nextOffset - offset));
    for (;;) {
      const piece = bytes.subarray(accepted, accepted + PIECE_BYTES);
      const isLast = accepted + piece.length === bytes.length;
      const waitMs = this.#app.closing.aborted
        ? 0
        : Math.round(Math.min(STEP_MS, Math.max(0, deadline - performance.now())));
      const since = performance.now();
      const answer = await this.#call(
        caller,
        exec,
        { offset: offset + accepted, data: piece.toString('base64'), close: close && isLast, wait_ms: waitMs },
        gone,
      );
      const progress = Math.min(bytes.length, answer.next_offset - offset) - accepted;
      accepted += Math.max(0, progress);
      queue.nextOffset = Math.max(queue.nextOffset, answer.next_offset);
      const isDone = accepted === bytes.length && (!close || answer.closed);
      // A guest that answers long before its wait is over is faulty. Stop here, to not ask it again and again.
      const isIdle = progress <= 0 && performance.now() - since < waitMs / 2;
      if (isDone || waitMs === 0 || isIdle) return answer;
    }
  }

  /** Makes the guest call, and once again if the host did not answer: the guest skips what it has accepted. */
  async #call(caller: Caller, exec: ExecRow, params: object, signal: AbortSignal): Promise<ExecStdin> {
    const call = () =>
      callGuest(this.#app, caller, exec.machine_id, 'jobs.stdin', { id: exec.id, ...params }, ExecStdin, {
        waits: false,
        signal,
      });
    try {
      return await call();
    } catch (error) {
      signal.throwIfAborted();
      if (!hasCode(error, 'host_unavailable')) throw error;
      return await call();
    }
  }

  async #answerEnded({ exec, hostId }: FoundExec, { offset, bytes }: Append): Promise<ExecStdin> {
    const report = await this.#app.hosts.client(hostId).getJob(exec.machine_id, exec.id, 0);
    if (report) await settleJob(this.#app.db, report);
    const accepted = report?.stdin_bytes;
    if (accepted !== undefined && offset + bytes.length <= accepted) return { next_offset: accepted, closed: true };
    const count = accepted === undefined ? '' : ` It had accepted ${accepted} bytes.`;
    throw new ServiceError('conflict', `The job has ended, so it takes no more stdin.${count}`);
  }
}

/** Resolves when `before` has, at the deadline, or when `gone` is aborted. */
async function settledOrOver(before: Promise<void>, deadline: number, gone: AbortSignal): Promise<void> {
  const settled = new AbortController();
  const signal = AbortSignal.any([gone, settled.signal]);
  const over = delay(Math.max(0, deadline - performance.now()), undefined, { signal }).catch(() => {});
  await Promise.race([before, over]);
  settled.abort();
}

const hasCode = (error: unknown, code: ErrorCode): boolean => error instanceof ServiceError && error.code === code;
