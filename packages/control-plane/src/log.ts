// The log: JSON lines on stdout. What may not be in it (keys, script text, argv, env, stdin, output, rows) is kept out
// here by shape: requests are never logged as objects, and of an error only name, code, message and stack.
import { type DestinationStream, type Logger, pino } from 'pino';
import type { LogLevel } from './config.ts';
import { steadyStdout } from './log-destination.ts';

export type Log = Logger;

type LoggedError = { type: string; code?: string; message: string; stack?: string; cause?: LoggedError };

/** A PostgreSQL error carries the failing row in `detail`, so errors are copied field by field. */
export function describeError(error: unknown): LoggedError {
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

/** Makes the process's log. `destination` is for tests that read it. */
export function createLog(level: LogLevel, destination?: DestinationStream): Log {
  const options = {
    level,
    base: { process: 'control-plane' },
    serializers: { err: describeError, error: describeError, req: () => undefined, res: () => undefined },
    redact: ['authorization', '*.authorization', 'headers.authorization', 'api_key', '*.api_key'],
  };
  return pino(options, destination ?? steadyStdout());
}
