// The functions of `Guest` that the agent may call through the gateway, and how long the agent waits for each.
import type { Guest } from '../guest/guest.ts';

/**
 * The gateway has its own, shorter limits for the guest's answers (guest-client.ts): 20 s; from an older guest agent,
 * 20 s for the head and 20 s for the body. These limits only end calls that a broken or hostile gateway does not
 * answer.
 */
const REQUEST_MS = 50_000;
/**
 * For calls that write the guest's dirty pages first; the gateway's own limits are 120 s for the head and, from an
 * older guest agent, 20 s for the body.
 */
const FLUSH_MS = 150_000;
/** A warm-up makes six requests and runs a job of 10 s at most. */
const WARM_UP_MS = 6 * REQUEST_MS;

/** Milliseconds until a call counts as unanswered. */
export const CALL_LIMITS_MS = {
  checkBare: REQUEST_MS,
  warmUp: WARM_UP_MS,
  warmUpJob: WARM_UP_MS,
  lease: REQUEST_MS,
  claim: REQUEST_MS,
  setIdentity: REQUEST_MS,
  acknowledgeOutput: REQUEST_MS,
  cancelJob: REQUEST_MS,
  listJobs: REQUEST_MS,
  forgetJob: REQUEST_MS,
  mountVolume: FLUSH_MS,
  unmountVolume: FLUSH_MS,
  freeze: FLUSH_MS,
  thaw: REQUEST_MS,
  holdProcesses: REQUEST_MS,
  releaseProcesses: REQUEST_MS,
  powerOff: REQUEST_MS,
} as const satisfies Partial<Record<keyof Guest, number>>;

/** The same for calls that return a stream: milliseconds until the stream must have begun. */
export const STREAM_LIMITS_MS = {
  startJob: REQUEST_MS,
  followJob: REQUEST_MS,
  openStream: REQUEST_MS,
} as const satisfies Partial<Record<keyof Guest, number>>;

/**
 * For a call or the beginning of a two-way stream with the guest: milliseconds in addition to the guest's own limit.
 */
export const SLACK_MS = 5_000;

export type CallMethod = keyof typeof CALL_LIMITS_MS;
export type StreamMethod = 'startJob' | 'followJob';

export function isCallMethod(method: string): method is CallMethod {
  return Object.hasOwn(CALL_LIMITS_MS, method);
}

/** Whether a method returns the output of a job. */
export function isJobMethod(method: string): method is 'startJob' | 'followJob' {
  return method === 'startJob' || method === 'followJob';
}
