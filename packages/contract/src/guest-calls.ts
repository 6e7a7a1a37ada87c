// The names of everything that the service asks a guest agent to do for a client, besides jobs. A guest call is one
// JSON request with one JSON answer. A guest stream is opened like a call and then carries bytes both ways; at its end
// it has a JSON result. The same name goes from the control plane through the host agent to the guest agent.
import { type Static, Type } from 'typebox';
import { OneOf, Uuid } from './fields.ts';

/** `timeoutMs`: how long the guest may take for its answer, in milliseconds. */
export const GUEST_CALLS = {
  'files.entry': { timeoutMs: 30_000 },
  'files.list': { timeoutMs: 60_000 },
  // A tree of a million files takes minutes to remove.
  'files.remove': { timeoutMs: 300_000 },
  'files.mkdir': { timeoutMs: 30_000 },
  'files.move': { timeoutMs: 30_000 },
  'terminals.open': { timeoutMs: 30_000 },
  'terminals.list': { timeoutMs: 10_000 },
  'terminals.resize': { timeoutMs: 10_000 },
  'terminals.end': { timeoutMs: 20_000 },
  'ports.list': { timeoutMs: 10_000 },
  // The guest waits up to 30 s for a command that does not read its stdin.
  'jobs.stdin': { timeoutMs: 40_000 },
  'jobs.signal': { timeoutMs: 10_000 },
} as const satisfies Record<string, { timeoutMs: number }>;
export type GuestCallName = keyof typeof GUEST_CALLS;

export const GUEST_STREAMS = [
  'files.read',
  'files.write',
  'files.archive',
  'files.unpack',
  'files.watch',
  'terminals.attach',
  'ports.connect',
] as const;
export type GuestStreamName = (typeof GUEST_STREAMS)[number];

export const HostGuestCallParams = Type.Object({
  id: Uuid(),
  name: OneOf(Object.keys(GUEST_CALLS) as GuestCallName[]),
});
export const HostGuestStreamParams = Type.Object({ id: Uuid(), name: OneOf(GUEST_STREAMS) });

/**
 * A stream on the host API is a POST whose request body and response body are sent at the same time, both in chunks.
 * `params` is a header of the request, `head` a header of the response, `result` a trailer of the response. All three
 * are JSON in base64url. A body without its last chunk was cut off: the stream broke and did not end.
 */
export const GUEST_STREAM_HEADERS = {
  params: 'x-sandbar-params',
  head: 'x-sandbar-head',
  result: 'x-sandbar-result',
} as const;

/**
 * The most bytes of all headers (and of all trailers) of a message on the host API. Two paths of 4,096 bytes, with each
 * byte percent-encoded, take 33 KB in base64url.
 */
export const HOST_HEADER_BYTES = 64 * 1024;

/** The trailer `result` of a stream: what the guest answered at its end, or why the guest ended it. */
export const GuestStreamEnd = Type.Union([
  Type.Object({ result: Type.Unknown() }),
  Type.Object({ error: Type.Object({ code: Type.String(), detail: Type.String() }) }),
]);
export type GuestStreamEnd = Static<typeof GuestStreamEnd>;

/** Encodes JSON text as the value of a header. */
export const encodeHeader = (json: string): string => Buffer.from(json).toString('base64url');

/** Decodes the value of a header to JSON text. */
export const decodeHeader = (value: string): string => Buffer.from(value, 'base64url').toString();
