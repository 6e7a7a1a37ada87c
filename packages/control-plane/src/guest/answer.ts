// Checks what a guest answers. A guest is not trusted: its answers may have any shape, and its refusals any code.
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import type { GuestCallName, GuestStreamName } from '@sandbar/contract/guest-calls.ts';
import type { Static, TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/compile';

/**
 * The codes of refusals that reach the client. The host may use the last three. All other codes are about the service
 * or the account, for which a guest may not speak.
 */
const CODES: ReadonlySet<ErrorCode> = new Set([
  'validation_error',
  'not_found',
  'conflict',
  'port_not_open',
  'disk_full',
  'host_unavailable',
  'fleet_capacity',
  'internal_error',
]);
/** The longest text of a refusal, in characters. A path of 4,096 bytes fits, percent-encoded. */
const DETAIL_MAX = 16_384;
/**
 * The error text of a guest agent that does not know a call or stream, because an older version of the service made its
 * machine.
 */
const UNKNOWN_NAME = 'no such request';
const FEATURES: Record<string, string> = {
  files: 'read or change files',
  terminals: 'open terminals',
  ports: 'reach its ports',
  jobs: 'send stdin or signals to jobs',
};

const validators = new WeakMap<TSchema, Validator>();

/** Returns the answer if it matches the schema. Throws `internal_error` otherwise. */
export function checkAnswer<T extends TSchema>(schema: T, answer: unknown): Static<T> {
  let validator = validators.get(schema);
  if (!validator) {
    validator = Compile(schema);
    validators.set(schema, validator);
  }
  if (validator.Check(answer)) return answer as Static<T>;
  throw badAnswer('an answer in a shape that is not allowed');
}

/** Turns the refusal of a guest call or a guest stream into the error that the client is told. */
export function toGuestRefusal(error: unknown, name: GuestCallName | GuestStreamName): unknown {
  if (!(error instanceof ServiceError)) return error;
  if (error.code === 'not_found' && error.message === UNKNOWN_NAME) {
    const feature = FEATURES[name.split('.')[0] ?? ''];
    return new ServiceError(
      'conflict',
      `This machine was created by an older version of the service and cannot ${feature}; create a new one.`,
    );
  }
  if (!CODES.has(error.code)) return badAnswer(`the code ${error.code}`);
  if (error.message.length <= DETAIL_MAX) return error;
  return new ServiceError(error.code, `${error.message.slice(0, DETAIL_MAX)}…`, { cause: error });
}

/** The error of an answer that a guest must not give. `what` goes into the log only. */
export const badAnswer = (what: string): ServiceError =>
  new ServiceError('internal_error', 'The agent in the machine gave an answer that makes no sense.', {
    cause: new Error(`a guest sent ${what}`),
  });
