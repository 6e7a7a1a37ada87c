// The log of a process: JSON lines on standard output. Secrets and what belongs to users (keys, script text, argv, env,
// stdin, output, database rows) must not be in it. So requests are never logged as objects, and of an error only its
// name, code, message, stack and cause.
import { type DestinationStream, type Logger, pino } from 'pino';
import { steadyStdout } from './steady-stdout.ts';

export type Log = Logger;

export type LogOptions = {
  /** Names the process in every line. */
  process: string;
  /** A level of pino; it throws for any other word. */
  level: string;
  /** Default: standard output. Tests read the log from here. */
  destination?: DestinationStream | undefined;
};

/** Makes the log of a process. */
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

/** Takes these fields only, because others may hold user data: PostgreSQL puts the failing row into `detail`. */
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
