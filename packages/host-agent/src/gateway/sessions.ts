// The gateway's side of the protocol: opens sessions with guests, passes the agent's calls on to them, and encodes what
// the guests answer. It stores nothing outside its own memory, so the agent may kill the gateway at any time.
import type { Guest } from '../guest/guest.ts';
import { isCallMethod, isJobMethod } from './calls.ts';
import { Credit } from './credit.ts';
import { encodeFailure } from './failure.ts';
import { GuestInput } from './guest-input.ts';
import { type Output, outputHead } from './output.ts';
import {
  decodeJson,
  encodeFrame,
  encodeJson,
  type Frame,
  KIND,
  MAX_OUTPUT_BYTES,
  ProtocolViolation,
  STREAM_CREDIT,
  uint32,
} from './protocol.ts';

/** Opens a session with the guest agent behind a socket. The socket's path is relative to the working directory. */
export type OpenGuest = (path: string, token: string, signal: AbortSignal) => Promise<Guest>;

/** Nobody listens on a guest's socket yet. */
export class NotListening extends Error {}

type Session = { abort: AbortController; guest: Guest | undefined };
type Call = { session: number; method: string; args: unknown[] };

export class GatewaySessions {
  readonly #openGuest: OpenGuest;
  readonly #send: (frame: Buffer) => void;
  readonly #sessions = new Map<number, Session>();
  readonly #streams = new Map<number, Credit>();
  readonly #inputs = new Map<number, GuestInput>();

  /** `send` sends a frame to the agent. */
  constructor(openGuest: OpenGuest, send: (frame: Buffer) => void) {
    this.#openGuest = openGuest;
    this.#send = send;
  }

  /** Handles a frame from the agent. Throws {@link ProtocolViolation} for an unknown kind or malformed JSON. */
  take({ kind, id, payload }: Frame): void {
    if (kind === KIND.open) void this.#open(id, (decodeJson(payload) as { token: string }).token);
    else if (kind === KIND.close) this.#close(id);
    else if (kind === KIND.call) void this.#call(id, decodeJson(payload) as Call);
    else if (kind === KIND.credit) this.#streams.get(id)?.grant(payload.readUInt32BE(0));
    else if (kind === KIND.drop) this.#drop(id);
    else if (kind === KIND.input) this.#inputs.get(id)?.write(payload);
    else if (kind === KIND.finish) this.#inputs.get(id)?.end();
    else if (kind === KIND.ping) this.#send(encodeFrame(KIND.pong, id));
    else throw new ProtocolViolation(`a frame of kind ${kind}`);
  }

  async #open(id: number, token: string): Promise<void> {
    const session: Session = { abort: new AbortController(), guest: undefined };
    this.#sessions.set(id, session);
    try {
      const guest = await this.#openGuest(`./${id}`, token, session.abort.signal);
      session.guest = guest;
      if (session.abort.signal.aborted) guest.close();
      else this.#send(encodeFrame(KIND.opened, id));
      await guest.closed;
      this.#ended(id, 'the session with the guest is over', true);
    } catch (error) {
      this.#ended(id, error instanceof Error ? error.message : String(error), !(error instanceof NotListening));
    }
  }

  #close(id: number): void {
    const session = this.#sessions.get(id);
    session?.abort.abort();
    session?.guest?.close();
  }

  #ended(id: number, message: string, isListening: boolean): void {
    this.#sessions.delete(id);
    this.#send(encodeFrame(KIND.ended, id, encodeJson({ message, isListening })));
  }

  async #call(id: number, { session, method, args }: Call): Promise<void> {
    try {
      const guest = this.#sessions.get(session)?.guest;
      if (!guest) throw new Error('the session with the guest is over');
      if (method === 'openStream') return await this.#duplex(id, guest, args as [string, string]);
      if (isJobMethod(method)) return await this.#stream(id, guest[method] as Streaming, guest, args);
      if (!isCallMethod(method) && method !== 'call') throw new Error(`there is no call ${method}`);
      const result = await (guest[method] as Answering).apply(guest, args);
      this.#send(encodeFrame(KIND.result, id, encodeJson(result)));
    } catch (error) {
      this.#send(encodeFrame(KIND.failure, id, encodeFailure(error)));
    }
  }

  async #stream(id: number, method: Streaming, guest: Guest, args: unknown[]): Promise<void> {
    const credit = new Credit(STREAM_CREDIT);
    this.#streams.set(id, credit);
    try {
      const frames = await method.apply(guest, args);
      this.#send(encodeFrame(KIND.result, id, encodeJson(null)));
      for await (const frame of frames) {
        if (frame.type === 'end') return this.#send(encodeFrame(KIND.end, id, encodeJson(frame.job)));
        if (!(await this.#output(id, credit, frame))) return;
      }
    } finally {
      this.#streams.delete(id);
    }
  }

  async #duplex(id: number, guest: Guest, args: [string, string]): Promise<void> {
    const credit = new Credit(STREAM_CREDIT);
    this.#streams.set(id, credit);
    const { head, duplex, result } = await guest.openStream(...args).catch((error: unknown) => {
      this.#streams.delete(id);
      throw error;
    });
    const input = new GuestInput(duplex, (bytes) => this.#send(encodeFrame(KIND.allow, id, uint32(bytes))));
    this.#inputs.set(id, input);
    try {
      // The agent may have dropped the call while the guest began the stream.
      if (credit.isDropped) return;
      this.#send(encodeFrame(KIND.result, id, encodeJson(head)));
      let offset = 0;
      for await (const bytes of duplex as AsyncIterable<Buffer>) {
        if (!(await this.#output(id, credit, { stream: 'stdout', offset, bytes }))) return;
        offset += bytes.length;
      }
      this.#send(encodeFrame(KIND.end, id, encodeJson(await result)));
    } catch (error) {
      // Report the error of the result. The error of the duplex is the same, or says only that the stream was cut.
      await result;
      throw error;
    } finally {
      duplex.destroy();
      this.#streams.delete(id);
      this.#inputs.delete(id);
    }
  }

  /** Sends output as the agent grants credit. Returns false when the agent reads no more. */
  async #output(id: number, credit: Credit, { stream, offset, bytes }: Output): Promise<boolean> {
    for (let done = 0; done < bytes.length; ) {
      const allowed = await credit.take(Math.min(bytes.length - done, MAX_OUTPUT_BYTES));
      if (allowed === 0) return false;
      const head = outputHead(stream, offset + done);
      this.#send(encodeFrame(KIND.output, id, head, bytes.subarray(done, done + allowed)));
      done += allowed;
    }
    return true;
  }

  #drop(id: number): void {
    this.#streams.get(id)?.drop();
    this.#inputs.get(id)?.cut();
  }
}

type Answering = (this: Guest, ...args: unknown[]) => Promise<unknown>;
type Streaming = (this: Guest, ...args: unknown[]) => ReturnType<Guest['startJob']>;
