// Says by a close code and a reason why the WebSocket of a terminal ends. Neither names a host, an address or a path.
import { ERROR_TABLE, type ErrorCode, type ServiceError } from '@sandbar/contract/errors.ts';
import { TERMINAL_CLOSES } from '@sandbar/contract/terminal.ts';

export type Close = { code: number; reason: string };

/** The longest reason that a close frame can have, bytes. */
const REASON_BYTES = 123;

const CODES: Partial<Record<ErrorCode, number>> = {
  internal_error: TERMINAL_CLOSES.internalError,
  shutting_down: TERMINAL_CLOSES.shuttingDown,
  host_unavailable: TERMINAL_CLOSES.unavailable,
  database_unavailable: TERMINAL_CLOSES.unavailable,
};

/** The close of a connection that an error ends. */
export function closeOf({ code, message }: Pick<ServiceError, 'code' | 'message'>): Close {
  return { code: CODES[code] ?? 4000 + ERROR_TABLE[code].status, reason: fit(`${code}: ${message}`) };
}

/** The close of a connection whose program ended. */
export function closeOfExit({ exit_code, signal }: { exit_code: number | null; signal: string | null }): Close {
  const how = exit_code === null ? `was ended by ${signal ?? 'a signal'}` : `exited with code ${exit_code}`;
  return { code: TERMINAL_CLOSES.ended, reason: fit(`The program ${how}.`) };
}

export const tooSlow: Close = {
  code: TERMINAL_CLOSES.tooSlow,
  reason: 'too_slow: The client took no data for too long. The terminal still runs; connect to it again.',
};

/** Cuts a text to the length of a reason, without cutting a character in two. */
function fit(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= REASON_BYTES) return text;
  return new TextDecoder().decode(bytes.subarray(0, REASON_BYTES), { stream: true });
}
