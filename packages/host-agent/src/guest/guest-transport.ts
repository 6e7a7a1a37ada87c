// How requests reach a guest agent and answers come back. There are two ways: frames (frame-transport.ts), and HTTP/2
// for machines that were created with an older guest agent (http2-transport.ts).
import type { JobFrame, StreamOffsets } from './guest.ts';
import type { GuestStream } from './guest-stream.ts';

/** The largest JSON body of an answer, in bytes. */
export const MAX_JSON_BYTES = 1024 * 1024;

/** `text`: the body, JSON or empty. */
export type Answer = { status: number; text: string };
/** A job's output, or the answer of a guest that refused to send it. */
export type StreamAnswer = { frames: AsyncIterable<JobFrame> } | Answer;
/** A two-way stream, or the answer of a guest that refused it. */
export type DuplexAnswer = { stream: GuestStream } | Answer;
export type GuestRequest = {
  method: string;
  path: string;
  /** Sent as JSON. */
  body?: unknown;
  /** JSON text, sent as it is instead of `body`. */
  json?: string;
  /** Milliseconds until the request counts as unanswered. */
  timeoutMs: number;
};

/** A session with one guest agent. All requests reject when it ends. */
export interface GuestTransport {
  /** Resolves when the session has ended, for any reason. */
  readonly closed: Promise<void>;
  close(): void;
  json(request: GuestRequest): Promise<Answer>;
  /**
   * Resolves when the guest has begun or refused to send the output. `from`: the offsets at which the request asks the
   * output to begin. Reading the output throws {@link GuestProtocolError} when the guest violates the protocol, and
   * `Error` when the stream breaks off before the end of the job.
   */
  stream(request: GuestRequest, from: StreamOffsets): Promise<StreamAnswer>;
  /** Resolves when the guest has begun or refused the two-way stream. */
  duplex(request: GuestRequest): Promise<DuplexAnswer>;
}

/** Returns the body of a request as JSON text, or undefined when it has none. */
export function bodyOf({ body, json }: GuestRequest): string | undefined {
  return json ?? (body === undefined ? undefined : JSON.stringify(body));
}

/** The error of a request that was not answered in time. */
export function noAnswer({ method, path }: GuestRequest): Error {
  return new Error(`the guest did not answer ${method} ${path} in time`);
}
