// Makes the message of an error for the user of the CLI. The message names options instead of the API's fields, and
// says what to do next.
import type { CommanderError } from '@commander-js/extra-typings';
import { ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { AdminSocketError } from './admin-socket-error.ts';
import { UsageError } from './arguments.ts';
import { CliError } from './cli-error.ts';
import { CopyError } from './copy-error.ts';
import { inWordsOfCli } from './option-names.ts';
import { toPrintable } from './print.ts';

/** Makes a message such as `unknown option '--nam' (Did you mean --name?); sandbar machine set --help tells more`. */
export function explainUsage(error: CommanderError, called: string): string {
  const problem = error.message
    .replace(/^error: /, '')
    .replaceAll('\n', ' ')
    .replace(/\.$/, '');
  return `${problem}; ${called} --help tells more`;
}

/** Makes the text for an error of the command `called`, such as `sandbar machine set`. Escapes control characters. */
export function describeError(error: unknown, called: string): string {
  if (error instanceof SandbarError) return toPrintable(describeAnswer(error, called));
  if (error instanceof ConnectionError) {
    return toPrintable(
      `${error.message}; start the service with npm start or sandbar up, or use another with sandbar login URL`,
    );
  }
  const isPlain = [CliError, ConfigurationError, UsageError, AdminSocketError, CopyError].some(
    (kind) => error instanceof kind,
  );
  if (error instanceof Error && isPlain) return toPrintable(error.message);
  // A bug of the CLI: print the stack, line by line.
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return text.split('\n').map(toPrintable).join('\n');
}

/** Makes a text such as `quota_exceeded: …; sandbar quota shows what the account uses`. */
function describeAnswer(error: SandbarError, called: string): string {
  const text = `${error.code}: ${inWordsOfCli(error.code, error.detail, called)}`;
  const next = nextStep(error, called);
  return next === undefined ? text : `${text.replace(/\.$/, '')}; ${next}`;
}

/** What the user can do about the error. Undefined when its detail says this already, or when nothing can be done. */
function nextStep(
  { code, detail, status, requestId, retryAfterSec }: SandbarError,
  called: string,
): string | undefined {
  switch (code) {
    case 'validation_error':
      return `${called} --help tells more`;
    case 'unauthenticated':
      return 'sandbar login makes a new key, or set SANDBAR_API_KEY';
    case 'forbidden':
      return 'sandbar whoami shows which account and key are in use';
    case 'not_found':
      return listingFor(detail);
    case 'quota_exceeded':
      return 'sandbar quota shows what the account uses';
    case 'insufficient_balance':
      return 'top up the wallet in the dashboard; sandbar ledger shows it';
    default:
      if (retryAfterSec !== null) return `try again in ${retryAfterSec} s`;
      // For a fault of the service, the operator finds the cause in the log by the request id.
      return status >= 500 && requestId !== null ? `tell the operator the request id ${requestId}` : undefined;
  }
}

function listingFor(detail: string): string | undefined {
  const [what] = /\b(machine|volume|snapshot)\b/i.exec(detail) ?? [];
  return what === undefined ? undefined : `sandbar ${what.toLowerCase()} ls lists what there is`;
}
