// The calls that are open in a session with a guest agent. Checks for each frame that the guest may send it now. So
// every accepted frame ends a call of the host, or begins its stream once, or carries bytes within its credit, or
// grants credit for input that the host has sent. A guest cannot send anything else, so it cannot keep the host busy
// with frames that mean nothing.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { type Frame, KIND, STATUS_BYTES } from './frame-codec.ts';
import { DuplexCall } from './frame-duplex.ts';
import type { StreamCall } from './frame-stream.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import type { Answer } from './guest-transport.ts';

const ANSWER_STATUSES: readonly number[] = [200, 201, 202, 204, 400, 404, 409, 500, 502, 507];
const BEGIN_STATUSES: readonly number[] = [200, 201];
const NO_CONTENT = 204;
const MAX_ID = 2 ** 32 - 1;
const OUTPUT = new Map<number, OutputStream>([
  [KIND.stdout, 'stdout'],
  [KIND.stderr, 'stderr'],
]);

/** A call that the host has sent to the guest, and that has not ended yet. */
export type OpenCall = {
  /** The stream that the call asked for: the output of a job, or a two-way stream. Undefined for other calls. */
  stream?: StreamCall | DuplexCall;
  /** Limits how long the host waits for the guest to answer the call or to begin its stream. */
  timer?: NodeJS.Timeout;
  onAnswer: (answer: Answer) => void;
  /** `head`: the head of a two-way stream as JSON text. It is empty for the output of a job. */
  onBegin?: (head: string) => void;
  /** Called when the call or its stream ends without an answer. */
  onFailure: (error: Error) => void;
};

export class FrameCalls {
  readonly #calls = new Map<number, OpenCall>();
  #lastId = 0;

  /** The id of the next call. Throws when the session has no more ids. */
  get nextId(): number {
    if (this.#lastId === MAX_ID) throw new Error('the session with the guest has made its last call');
    return this.#lastId + 1;
  }

  /** Adds a call, and returns its id. */
  open(call: OpenCall): number {
    this.#lastId = this.nextId;
    this.#calls.set(this.#lastId, call);
    return this.#lastId;
  }

  /** Whether the guest may still send frames for this call. This includes calls that the host has cancelled. */
  isOpen(id: number): boolean {
    return this.#calls.has(id);
  }

  /** Handles a frame. Throws {@link GuestProtocolError} when the guest may not send it now. */
  take({ kind, id, payload }: Frame): void {
    const call = this.#calls.get(id);
    if (!call) throw new GuestProtocolError(`the guest sent a frame of kind ${kind} for call ${id}, which is not open`);
    const output = OUTPUT.get(kind);
    if (output) {
      streamOf(call, kind).push(output, payload);
      return;
    }
    if (kind === KIND.begin) {
      const stream = streamOf(call, kind);
      stream.begin(statusOf(payload, BEGIN_STATUSES));
      if (payload.length > STATUS_BYTES && !(stream instanceof DuplexCall))
        throw new GuestProtocolError('the guest began the output of a job with a head');
      clearTimeout(call.timer);
      call.onBegin?.(payload.toString('utf8', STATUS_BYTES));
      return;
    }
    if (kind === KIND.inputCredit) {
      const stream = streamOf(call, kind);
      const bytes = payload.readUInt32BE(0);
      if (!(stream instanceof DuplexCall) || bytes === 0)
        throw new GuestProtocolError(`the guest granted ${bytes} bytes of input`);
      stream.allowInput(bytes);
      return;
    }
    if (kind === KIND.answer) {
      const answer = { status: statusOf(payload, ANSWER_STATUSES), text: payload.toString('utf8', STATUS_BYTES) };
      if (answer.status === NO_CONTENT && answer.text !== '')
        throw new GuestProtocolError('the guest sent an answer of status 204 with a body');
      call.stream?.refuse(answer.status);
      call.onAnswer(answer);
    } else if (kind === KIND.end) streamOf(call, kind).end(payload);
    else call.onFailure(new Error('the guest broke off its answer'));
    clearTimeout(call.timer);
    this.#calls.delete(id);
  }

  /** Ends all calls: the call `culprit` with `error`, all others with an error that says only why the session ended. */
  failAll(error: Error, culprit?: number): void {
    const others = new Error(`the session with the guest broke off: ${error.message}`);
    for (const [id, call] of this.#calls) {
      clearTimeout(call.timer);
      call.onFailure(id === culprit ? error : others);
    }
    this.#calls.clear();
  }
}

function streamOf({ stream }: OpenCall, kind: number): StreamCall | DuplexCall {
  if (!stream) throw new GuestProtocolError(`the guest sent a frame of kind ${kind} for a call without output`);
  return stream;
}

function statusOf(payload: Buffer, allowed: readonly number[]): number {
  const status = payload.readUInt16BE(0);
  if (!allowed.includes(status)) throw new GuestProtocolError(`the guest answered with the status ${status}`);
  return status;
}
