// Reads the amounts of money in the operator's requests, so that a refusal names the field.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { parseEur } from '../billing/money.ts';

/** The smallest and the largest amount that a field may have, micro-euro. */
export type AmountBounds = { least: number; most: number };

const EUR = 1_000_000;

/**
 * Converts a field's text, an amount in EUR, to micro-euro. Throws `validation_error`, which names the field, if the
 * text is no amount or the amount is out of bounds.
 */
export function readAmount(field: string, text: string, { least, most }: AmountBounds): number {
  const micros = parseField(field, text);
  if (micros >= least && micros <= most) return micros;
  const from = least === 1 ? 'more than 0 and at most' : `from ${least / EUR} to`;
  throw new ServiceError('validation_error', `${field} must be ${from} ${most / EUR} EUR.`);
}

function parseField(field: string, text: string): number {
  try {
    return parseEur(text);
  } catch (cause) {
    const detail = `${field} must be EUR with at most six decimals, such as "12.34".`;
    throw new ServiceError('validation_error', detail, { cause });
  }
}
