// A session with a guest agent in frames (frame-codec.ts). The guest may be hostile. So the session ends at the first
// frame that the guest may not send, and the host reads from the guest only as fast as it has CPU time for this guest
// (work-budget.ts) and memory for what nobody has read yet.
import type { Socket } from 'node:net';
import { FrameCalls, type OpenCall } from './frame-calls.ts';
import {
  encodeCancel,
  encodeCredit,
  encodeInput,
  encodeInputEnd,
  encodeRequest,
  FrameReader,
  MalformedFrame,
} from './frame-codec.ts';
import { DuplexCall } from './frame-duplex.ts';
import { StreamCall } from './frame-stream.ts';
import type { StreamOffsets } from './guest.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import {
  type Answer,
  bodyOf,
  type DuplexAnswer,
  type GuestRequest,
  type GuestTransport,
  noAnswer,
  type StreamAnswer,
} from './guest-transport.ts';
import { WorkBudget } from './work-budget.ts';

/** When more output than this is unread in all streams together, the host reads no more until some was taken. */
const MAX_UNREAD_BYTES = 8 * 1024 * 1024;
/**
 * Most bytes that may wait in the host's memory for the guest to read them: the largest requests of the 16 jobs that a
 * machine may run at once (2 MiB each), and some more.
 */
const MAX_BACKLOG_BYTES = 40 * 1024 * 1024;

export class FrameTransport implements GuestTransport {
  readonly closed: Promise<void>;
  readonly #socket: Socket;
  readonly #budget: WorkBudget;
  readonly #reader = new FrameReader();
  readonly #calls = new FrameCalls();
  #unreadBytes = 0;
  #isBudgetUsedUp = false;
  /** Why the session ended. Undefined while it is open. */
  #end: Error | undefined;

  /** `socket`: a socket on which `openSession` has resolved with `frames`. */
  constructor(socket: Socket, budget = new WorkBudget()) {
    this.#socket = socket;
    this.#budget = budget;
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        this.#endWith(new Error('the guest closed its port'));
        resolve();
      });
    });
    socket.on('error', (error) => this.#endWith(error));
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.resume();
  }

  close(): void {
    this.#endWith(new Error('the host closed the session'));
  }

  json(request: GuestRequest): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#send(request, { onAnswer: resolve, onFailure: reject });
    });
  }

  stream(request: GuestRequest, from: StreamOffsets): Promise<StreamAnswer> {
    return new Promise((resolve, reject) => {
      const stream: StreamCall = new StreamCall(from, {
        grant: (bytes) => this.#writeIfOpen(id, encodeCredit(id, bytes)),
        drop: () => this.#cancel(id),
        onUnread: (bytes) => this.#onUnread(bytes),
      });
      const onBegin = () => resolve({ frames: stream });
      const onFailure = (error: Error) => {
        reject(error);
        stream.fail(error);
      };
      const id = this.#send(request, { stream, onAnswer: resolve, onBegin, onFailure });
    });
  }

  duplex(request: GuestRequest): Promise<DuplexAnswer> {
    return new Promise((resolve, reject) => {
      const stream: DuplexCall = new DuplexCall({
        grant: (bytes) => this.#writeIfOpen(id, encodeCredit(id, bytes)),
        send: (bytes) => this.#writeIfOpen(id, encodeInput(id, bytes)),
        sendEnd: () => this.#writeIfOpen(id, encodeInputEnd(id)),
        drop: () => this.#cancel(id),
        onUnread: (bytes) => this.#onUnread(bytes),
      });
      const { duplex, result } = stream;
      const onBegin = (head: string) => resolve({ stream: { head, duplex, result } });
      const onFailure = (error: Error) => {
        reject(error);
        stream.fail(error);
      };
      const id = this.#send(request, { stream, onAnswer: resolve, onBegin, onFailure });
    });
  }

  #onUnread(bytes: number): void {
    this.#unreadBytes += bytes;
    if (bytes < 0) this.#pauseOrResume();
  }

  /** Sends a request, and cancels it when it is not answered in time. Returns its id. Throws when it cannot be sent. */
  #send(request: GuestRequest, call: OpenCall): number {
    if (this.#end) throw new Error('the session with the guest is over');
    const { method, path, timeoutMs } = request;
    const frame = encodeRequest(this.#calls.nextId, method, path, bodyOf(request) ?? '');
    const id = this.#calls.open(call);
    call.timer = setTimeout(() => {
      call.onFailure(noAnswer(request));
      call.stream?.drop();
      this.#cancel(id);
    }, timeoutMs);
    this.#write(frame);
    return id;
  }

  /** Tells the guest to stop with a call. What it still sends for the call is checked and discarded. */
  #cancel(id: number): void {
    this.#writeIfOpen(id, encodeCancel(id));
  }

  /** Sends a frame of a call, unless the guest has ended the call already. */
  #writeIfOpen(id: number, frame: Buffer): void {
    if (this.#calls.isOpen(id)) this.#write(frame);
  }

  #write(frame: Buffer): void {
    if (this.#end) return;
    this.#socket.write(frame);
    if (this.#socket.writableLength > MAX_BACKLOG_BYTES) this.#endWith(new Error('the guest does not read'));
  }

  #read(chunk: Buffer): void {
    let frames = 0;
    let id: number | undefined;
    try {
      for (const frame of this.#reader.push(chunk)) {
        if (this.#end) return;
        frames++;
        id = frame.id;
        this.#calls.take(frame);
      }
    } catch (error) {
      if (!(error instanceof GuestProtocolError)) throw error;
      this.#endWith(error, error instanceof MalformedFrame ? error.id : id);
      return;
    }
    const moreBudget = this.#budget.spend(frames, chunk.length);
    this.#isBudgetUsedUp = moreBudget !== undefined;
    this.#pauseOrResume();
    void moreBudget?.then(() => {
      this.#isBudgetUsedUp = false;
      this.#pauseOrResume();
    });
  }

  #pauseOrResume(): void {
    if (this.#end) return;
    if (this.#isBudgetUsedUp || this.#unreadBytes > MAX_UNREAD_BYTES) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  /** Ends the session and all its calls. `culprit`: the call with which the guest violated the protocol. */
  #endWith(error: Error, culprit?: number): void {
    if (this.#end) return;
    this.#end = error;
    this.#socket.destroy();
    this.#calls.failAll(error, culprit);
  }
}
