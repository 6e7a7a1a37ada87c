// The exit codes of all commands. `run`, `exec` and `logs -f` end with the exit code of the command in the machine
// instead, unless they fail themselves.
import { CommanderError } from '@commander-js/extra-typings';
import { ConfigurationError, TimeoutError } from '@sandbar/sdk/errors.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { UsageError } from './arguments.ts';
import { CliError } from './cli-error.ts';
import { Interrupted } from './interruption.ts';

export const EXIT = {
  ok: 0,
  error: 1,
  usage: 2,
  outputCut: 3,
  auth: 4,
  notFound: 5,
  limit: 6,
  timeout: 124,
  noResult: 125,
  interrupted: 130,
} as const;

/** What each exit code means, in the order of the help. */
export const EXIT_CODES: readonly { code: number; meaning: string }[] = [
  { code: EXIT.ok, meaning: 'success' },
  { code: EXIT.error, meaning: 'any other error' },
  { code: EXIT.usage, meaning: 'wrong command line, or a value that the service does not accept' },
  { code: EXIT.outputCut, meaning: 'the command succeeded, but its output was cut at the limit of the service' },
  { code: EXIT.auth, meaning: 'no key is configured, or the key is refused or may not do this' },
  { code: EXIT.notFound, meaning: 'there is no such machine, volume, snapshot or file' },
  { code: EXIT.limit, meaning: 'a quota, the rate limit, the wallet or the capacity of the hosts is used up' },
  { code: EXIT.timeout, meaning: 'time-out' },
  { code: EXIT.noResult, meaning: 'the machine stopped while the command ran, so there is no result' },
  { code: EXIT.interrupted, meaning: 'interrupted by Ctrl-C (128 + the number of any other signal)' },
];

/** The codes of the service's errors that have an exit code of their own. All other codes are `EXIT.error`. */
const OF_SERVICE: Readonly<Record<string, number>> = {
  validation_error: EXIT.usage,
  unauthenticated: EXIT.auth,
  forbidden: EXIT.auth,
  password_required: EXIT.auth,
  sign_in_required: EXIT.auth,
  not_found: EXIT.notFound,
  quota_exceeded: EXIT.limit,
  rate_limited: EXIT.limit,
  insufficient_balance: EXIT.limit,
  fleet_capacity: EXIT.limit,
};

/** The exit code of a command that failed with this error. */
export function exitCodeOfError(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (error instanceof UsageError) return EXIT.usage;
  if (error instanceof CliError || error instanceof Interrupted) return error.exitCode;
  if (error instanceof ConfigurationError) return EXIT.auth;
  if (error instanceof TimeoutError) return EXIT.timeout;
  if (error instanceof SandbarError) return exitCodeOfCode(error.code);
  return EXIT.error;
}

/** The exit code for an error response. `code`: the error code of the response, or undefined when it has none. */
export function exitCodeOfCode(code: string | undefined): number {
  return code !== undefined && Object.hasOwn(OF_SERVICE, code) ? (OF_SERVICE[code] ?? EXIT.error) : EXIT.error;
}
