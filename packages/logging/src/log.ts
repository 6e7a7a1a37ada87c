// Creates the log of a process: JSON lines on standard output. The log must not contain secrets or data of users (keys,
// script text, argv, env, stdin, output, database rows). So requests are never logged as objects, and an error is
// logged only with its name, code, message, stack and cause.
import { type DestinationStream, type Logger, pino } from 'pino';
import { steadyStdout } from './steady-stdout.ts';

export type Log = Logger;

export type LogOptions = {
  /** The name of the process, which each line contains. */
  process: string;
  /** The least severe level that is logged. pino throws for an unknown level. */
  level: string;
  /** Where the log goes. The default is standard output. Tests pass a stream to read the log. */
  destination?: DestinationStream | undefined;
};

/** Creates the log of a process. */
export function createLog({ process, level, destination }: LogOptions): Log {
  const options = {
    level,
    base: { process },
    serializers: { err: describeError, error: describeError, req: () => undefined, res: () => undefined },
    redact: ['authorization', '*.authorization', 'headers.authorization', 'api_key', '*.api_key'],
  };
  return pino(options, destination ?? steadyStdout());
}

type LoggedError = { type: string; code?: string; message: string; stack?: string; cause?: LoggedError };

/**
 * Copies only these fields of an error, because other fields may hold user data. For example, PostgreSQL puts the
 * failing row into `detail`.
 */
function describeError(error: unknown): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error, message: String(error) };
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined;
  return {
    type: error.name,
    ...(code === undefined ? {} : { code }),
    message: error.message,
    ...(error.stack === undefined ? {} : { stack: error.stack }),
    ...(error.cause === undefined ? {} : { cause: describeError(error.cause) }),
  };
}
