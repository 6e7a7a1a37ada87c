// Checks the shape of everything that the gateway answers, because a guest may have taken over the gateway.
import { JOB_STATUSES } from '@sandbar/contract/exec-states.ts';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import type { GuestJob } from '../guest/guest.ts';
import { decodeJson, ProtocolViolation } from './protocol.ts';

const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const Job = Type.Object(
  {
    id: Type.String({ maxLength: 64 }),
    status: Type.Union(JOB_STATUSES.filter((status) => status !== 'lost').map((status) => Type.Literal(status))),
    exitCode: Type.Union([Type.Integer({ minimum: 0, maximum: 255 }), Type.Null()]),
    signal: Type.Union([Type.String({ pattern: '^SIG[A-Z0-9+]{1,12}$' }), Type.Null()]),
    stdinBytes: Type.Union([Count, Type.Null()]),
    stdoutBytes: Count,
    stderrBytes: Count,
    truncated: Type.Boolean(),
  },
  { additionalProperties: false },
);
const Jobs = Type.Array(Job);
const Ended = Type.Object(
  { message: Type.String({ maxLength: 2000 }), isListening: Type.Boolean() },
  { additionalProperties: false },
);

export type SessionEnd = { message: string; isListening: boolean };

/** Throws {@link ProtocolViolation} when the shape is wrong, as do the other parsers of this file. */
export function parseEndedJob(payload: Buffer): GuestJob {
  const job = decodeJson(payload);
  if (!Value.Check(Job, job)) throw new ProtocolViolation('a job in a shape that is not allowed');
  return job as GuestJob;
}

export function parseJobs(result: unknown): GuestJob[] {
  if (!Value.Check(Jobs, result)) throw new ProtocolViolation('a list of jobs in a shape that is not allowed');
  return result as GuestJob[];
}

export function parseBoolean(result: unknown): boolean {
  if (typeof result !== 'boolean') throw new ProtocolViolation('a result that is neither true nor false');
  return result;
}

export function parseNothing(result: unknown): void {
  if (result !== null) throw new ProtocolViolation('a result where there is none');
}

export function parseSessionEnd(payload: Buffer): SessionEnd {
  const ended = decodeJson(payload);
  if (!Value.Check(Ended, ended)) throw new ProtocolViolation('the end of a session in a shape that is not allowed');
  return ended;
}
