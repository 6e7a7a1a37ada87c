// Parses how a guest ended a two-way stream: `{"result": …}` or `{"error": {code, detail}}`.
import type { ServiceError } from '@sandbar/contract/errors.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import { refusalOf } from './refusal.ts';

/**
 * Returns the result as JSON text, or the guest's error. Throws {@link GuestProtocolError} when the text is not JSON.
 */
export function parseStreamEnd(text: string): string | ServiceError {
  const { result, error } = parse(text);
  return error === undefined ? JSON.stringify(result ?? null) : refusalOf(Object(error));
}

function parse(text: string): { result?: unknown; error?: unknown } {
  try {
    return Object(JSON.parse(text));
  } catch {
    throw new GuestProtocolError('the guest ended a stream with a text that is not JSON');
  }
}
