// Writes the page of the error codes from the service's own table, with what to do about each.
import { ERROR_TABLE, type ErrorCode } from '@sandbar/contract/errors.ts';
import { REMEDIES } from './error-remedies.ts';
import { cell, table } from './markdown.ts';

/** `quota_exceeded` becomes `QuotaExceededError`, as in both SDKs. */
export function classOf(code: string): string {
  const name = code
    .split('_')
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join('');
  return name.endsWith('Error') ? name : `${name}Error`;
}

/** The Markdown of all codes: a table of them, then a section for each. */
export function errorsPage(): string {
  const codes = Object.entries(ERROR_TABLE) as [ErrorCode, { status: number; when: string }][];
  const rows = codes.map(([code, { status }]) => [`[${code}](#${code})`, String(status), `\`${classOf(code)}\``]);
  const sections = codes.map(
    ([code, { status, when }]) =>
      `## ${code}\n\n**${status}** · class \`${classOf(code)}\` in both SDKs\n\n${cell(when)}\n\n**What to do.** ${REMEDIES[code]}\n`,
  );
  return [table(['code', 'status', 'class'], rows), ...sections].join('\n');
}
