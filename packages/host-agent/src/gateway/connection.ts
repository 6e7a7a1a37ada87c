// The agent's side of the gateway protocol (protocol.ts), for one gateway process. It numbers sessions and calls,
// matches the gateway's frames to them, and kills the gateway when the gateway violates the protocol or does not answer
// pings.
import type { Duplex } from 'node:stream';
import type { GuestStream } from '../guest/guest-stream.ts';
import { parseSessionEnd, type SessionEnd } from './answers.ts';
import { CALL_LIMITS_MS, type CallMethod, SLACK_MS, STREAM_LIMITS_MS, type StreamMethod } from './calls.ts';
import { decodeFailure } from './failure.ts';
import { parseOutput } from './output.ts';
import {
  decodeJson,
  encodeFrame,
  encodeJson,
  type Frame,
  FrameReader,
  KIND,
  ProtocolViolation,
  uint32,
} from './protocol.ts';
import { parseText, RemoteDuplex } from './remote-duplex.ts';
import type { SessionLine } from './remote-guest.ts';
import { RemoteStream } from './remote-stream.ts';

const PING_MS = 1000;
/**
 * The gateway counts as stuck when this many pings in a row got no answer. Pings are counted instead of time, because
 * an agent that stalls sends no pings, so its own stall does not count against the gateway.
 */
const MAX_UNANSWERED = 10;
/** Most bytes that may wait in the agent's memory for the gateway to read them. */
const MAX_BACKLOG_BYTES = 64 * 1024 * 1024;

/** The session could not be opened, because the gateway is gone. */
export class GatewayGone extends Error {}
/** The session could not be opened, because nobody listens on the guest's socket yet. */
export class GuestNotListening extends Error {}

type Session = { onOpened: () => void; onEnded: (end: SessionEnd) => void };
type Call = {
  session: number;
  timer: NodeJS.Timeout;
  /** May throw {@link ProtocolViolation}. */
  onResult: (result: unknown) => void;
  onFailure: (error: Error) => void;
  /** The stream that the call returns; undefined for all other calls. */
  stream?: RemoteStream | RemoteDuplex;
};

export class GatewayConnection {
  /** Resolves when the gateway takes calls. Rejects when the gateway ends before that. */
  readonly ready: Promise<void>;
  readonly #channel: Duplex;
  readonly #kill: () => void;
  readonly #reader = new FrameReader();
  readonly #sessions = new Map<number, Session>();
  readonly #calls = new Map<number, Call>();
  readonly #pings: NodeJS.Timeout;
  readonly #settleReady: { resolve: () => void; reject: (error: Error) => void };
  #lastId = 0;
  #unanswered = 0;
  #failure: string | undefined;

  /** `kill` ends the gateway's process. */
  constructor(channel: Duplex, kill: () => void) {
    this.#channel = channel;
    this.#kill = kill;
    const { promise, ...settle } = Promise.withResolvers<void>();
    this.ready = promise;
    this.#settleReady = settle;
    promise.catch(() => {});
    channel.on('data', (chunk: Buffer) => this.#read(chunk));
    channel.on('error', (error) => this.fail(error.message));
    channel.on('close', () => this.fail('it closed its channel'));
    this.#pings = setInterval(() => this.#ping(), PING_MS).unref();
  }

  /** Why the connection ended. Undefined while it is open. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Kills the gateway, and ends all sessions and calls. If called again, keeps the first reason. */
  fail(why: string): void {
    if (this.#failure !== undefined) return;
    this.#failure = why;
    clearInterval(this.#pings);
    this.#kill();
    this.#channel.destroy();
    this.#settleReady.reject(new GatewayGone(why));
    const message = `the guest gateway is gone: ${why}`;
    for (const id of [...this.#sessions.keys()]) this.#endSession(id, { message, isListening: true });
  }

  /**
   * Returns the id for a new session. Before the caller opens the session, it must place the guest's socket in the
   * gateway's folder as `./<id>`.
   */
  newSessionId(): number {
    return ++this.#lastId;
  }

  /**
   * Opens a session. Rejects with {@link GatewayGone}, {@link GuestNotListening}, or an `Error` with the reason, for
   * example that `signal` aborted.
   */
  async openSession(id: number, token: string, signal: AbortSignal): Promise<SessionLine> {
    if (this.#failure !== undefined) throw new GatewayGone(this.#failure);
    const opened = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    this.#sessions.set(id, {
      onOpened: opened.resolve,
      onEnded: (end) => {
        opened.reject(this.#whyNotOpened(end));
        closed.resolve();
      },
    });
    const close = (why = 'the session with the guest was closed') => this.#closeSession(id, why);
    const giveUp = () => close('the guest agent did not answer in time');
    this.#send(KIND.open, id, encodeJson({ token }));
    signal.addEventListener('abort', giveUp);
    if (signal.aborted) giveUp();
    await opened.promise.finally(() => signal.removeEventListener('abort', giveUp));
    return {
      closed: closed.promise,
      call: (method, args, parse) => this.#call(id, method, args, parse),
      stream: (method, args, jobId) => this.#stream(id, method, args, jobId),
      callGuest: (name, params, timeoutMs) => this.#callGuest(id, name, params, timeoutMs),
      openStream: (name, params) => this.#openStream(id, name, params),
      close,
    };
  }

  #whyNotOpened({ message, isListening }: SessionEnd): Error {
    if (this.#failure !== undefined) return new GatewayGone(message);
    return isListening ? new Error(message) : new GuestNotListening(message);
  }

  #call<T>(session: number, method: CallMethod, args: readonly unknown[], parse: (result: unknown) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const onResult = (result: unknown) => resolve(parse(result));
      this.#begin({ session, method, args }, CALL_LIMITS_MS[method], { onResult, onFailure: reject });
    });
  }

  #stream(session: number, method: StreamMethod, args: readonly unknown[], jobId: string): Promise<RemoteStream> {
    return new Promise((resolve, reject) => {
      const stream: RemoteStream = new RemoteStream(jobId, {
        grant: (bytes) => this.#send(KIND.credit, id, uint32(bytes)),
        drop: () => {
          if (this.#forget(id)) this.#send(KIND.drop, id);
        },
      });
      const onFailure = (error: Error) => {
        reject(error);
        stream.fail(error);
      };
      const calls = { onResult: () => resolve(stream), onFailure, stream };
      const id = this.#begin({ session, method, args }, STREAM_LIMITS_MS[method], calls);
    });
  }

  #callGuest(session: number, name: string, params: string, timeoutMs: number): Promise<string> {
    return new Promise((resolve, reject) => {
      const onResult = (result: unknown) => resolve(parseText(result));
      const call = { session, method: 'call', args: [name, params, timeoutMs] };
      this.#begin(call, timeoutMs + SLACK_MS, { onResult, onFailure: reject });
    });
  }

  #openStream(session: number, name: string, params: string): Promise<GuestStream> {
    return new Promise((resolve, reject) => {
      const stream: RemoteDuplex = new RemoteDuplex({
        grant: (bytes) => this.#sendOf(id, KIND.credit, uint32(bytes)),
        send: (bytes) => this.#sendOf(id, KIND.input, bytes),
        sendEnd: () => this.#sendOf(id, KIND.finish),
        drop: () => {
          if (this.#forget(id)) this.#send(KIND.drop, id);
        },
      });
      const onFailure = (error: Error) => {
        reject(error);
        stream.fail(error);
      };
      const onResult = (head: unknown) => resolve(stream.toGuestStream(parseText(head)));
      const call = { session, method: 'openStream', args: [name, params] };
      const id = this.#begin(call, STREAM_LIMITS_MS.openStream, { onResult, onFailure, stream });
    });
  }

  /** Sends a frame of a call, unless the call is over. */
  #sendOf(id: number, kind: number, payload?: Buffer): void {
    if (this.#calls.has(id)) this.#send(kind, id, payload);
  }

  /** Sends a call. Returns its id. */
  #begin(
    call: { session: number; method: string; args: readonly unknown[] },
    limitMs: number,
    handlers: Omit<Call, 'session' | 'timer'>,
  ): number {
    const id = ++this.#lastId;
    if (!this.#sessions.has(call.session)) {
      handlers.onFailure(new Error('the session with the guest is over'));
      return id;
    }
    const timer = setTimeout(() => {
      this.#forget(id);
      handlers.onFailure(new Error(`the guest gateway did not answer ${call.method} in time`));
    }, limitMs);
    this.#calls.set(id, { session: call.session, timer, ...handlers });
    try {
      this.#send(KIND.call, id, encodeJson(call));
    } catch (error) {
      this.#forget(id);
      handlers.onFailure(error as Error);
    }
    return id;
  }

  /** Removes a call that is over. Returns the call, or undefined when it was removed already. */
  #forget(id: number): Call | undefined {
    const call = this.#calls.get(id);
    clearTimeout(call?.timer);
    this.#calls.delete(id);
    return call;
  }

  #closeSession(id: number, why: string): void {
    if (!this.#sessions.has(id)) return;
    this.#send(KIND.close, id);
    // Ends the session without waiting for the gateway's `ended` frame, because a stuck gateway would never send it.
    this.#endSession(id, { message: why, isListening: true });
  }

  #endSession(id: number, end: SessionEnd): void {
    const session = this.#sessions.get(id);
    this.#sessions.delete(id);
    for (const [callId, call] of this.#calls) {
      if (call.session !== id) continue;
      this.#forget(callId);
      call.onFailure(new Error(end.message));
    }
    session?.onEnded(end);
  }

  #read(chunk: Buffer): void {
    try {
      for (const frame of this.#reader.read(chunk)) this.#take(frame);
    } catch (error) {
      if (!(error instanceof ProtocolViolation)) throw error;
      this.fail(`it violated its protocol: ${error.message}`);
    }
  }

  /** Handles a frame from the gateway. Throws {@link ProtocolViolation} when the protocol does not allow the frame. */
  #take({ kind, id, payload }: Frame): void {
    if (id > this.#lastId) throw new ProtocolViolation(`id ${id} was never given out`);
    if (kind === KIND.ready) this.#settleReady.resolve();
    else if (kind === KIND.pong) this.#unanswered = 0;
    else if (kind === KIND.opened) this.#sessions.get(id)?.onOpened();
    else if (kind === KIND.ended) this.#endSession(id, parseSessionEnd(payload));
    else if (kind === KIND.result) this.#onResult(id, decodeJson(payload));
    else if (kind === KIND.failure) this.#onFailure(id, decodeFailure(payload));
    else if (kind === KIND.output) this.#calls.get(id)?.stream?.push(parseOutput(payload));
    else if (kind === KIND.end) this.#onStreamEnd(id, payload);
    else if (kind === KIND.allow) this.#onAllow(id, payload);
    else throw new ProtocolViolation(`a frame of kind ${kind}`);
  }

  #onResult(id: number, result: unknown): void {
    const call = this.#calls.get(id);
    // `onResult` may throw, which ends the connection and rejects all its calls. So keep the call registered until
    // `onResult` has returned.
    call?.onResult(result);
    if (call?.stream) clearTimeout(call.timer);
    else this.#forget(id);
  }

  #onStreamEnd(id: number, payload: Buffer): void {
    // `end` may throw, which ends the connection and rejects all its calls, so forget the call after it.
    this.#calls.get(id)?.stream?.end(payload);
    this.#forget(id);
  }

  #onAllow(id: number, payload: Buffer): void {
    const stream = this.#calls.get(id)?.stream;
    if (payload.length !== 4) throw new ProtocolViolation('credit in a shape that is not allowed');
    if (stream instanceof RemoteDuplex) stream.allowInput(payload.readUInt32BE(0));
  }

  #onFailure(id: number, error: Error): void {
    this.#forget(id)?.onFailure(error);
  }

  #ping(): void {
    if (++this.#unanswered > MAX_UNANSWERED) this.fail('it does not answer');
    else this.#send(KIND.ping, 0);
  }

  #send(kind: number, id: number, payload?: Buffer): void {
    if (this.#failure !== undefined) return;
    this.#channel.write(payload ? encodeFrame(kind, id, payload) : encodeFrame(kind, id));
    if (this.#channel.writableLength > MAX_BACKLOG_BYTES) this.fail('it does not read');
  }
}
