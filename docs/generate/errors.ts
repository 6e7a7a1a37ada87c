// Writes the page of the error codes from the service's error table, and says what to do about each code.
import { ERROR_TABLE, type ErrorCode } from '@sandbar/contract/errors.ts';
import { REMEDIES } from './error-remedies.ts';
import { cell, table } from './markdown.ts';

/** The name of an error class in both SDKs: `QuotaExceededError` for `quota_exceeded`. */
export function classOf(code: string): string {
  const name = code
    .split('_')
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join('');
  return name.endsWith('Error') ? name : `${name}Error`;
}

/** The Markdown of the page: a table of all codes, then a section for each code. */
export function errorsPage(): string {
  const codes = Object.entries(ERROR_TABLE) as [ErrorCode, { status: number; when: string }][];
  const rows = codes.map(([code, { status }]) => [`[${code}](#${code})`, String(status), `\`${classOf(code)}\``]);
  const sections = codes.map(
    ([code, { status, when }]) =>
      `## ${code}\n\n**${status}** · class \`${classOf(code)}\` in both SDKs\n\n${cell(when)}\n\n**What to do.** ${REMEDIES[code]}\n`,
  );
  return [table(['code', 'status', 'class'], rows), ...sections].join('\n');
}
