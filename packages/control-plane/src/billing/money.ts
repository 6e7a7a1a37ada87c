// Money is an integer number of micro-euro in code and in the database, and a decimal string in the API. The conversion
// uses no floating-point numbers, which would round.
import { ServiceError } from '@sandbar/contract/errors.ts';

const DECIMALS = 6;
const EUR = 10 ** DECIMALS;
/** Micro-euro in one cent. Payment providers count whole cents. */
export const MICROS_PER_CENT = 10_000;
const SHAPE = /^(-?)(\d{1,10})(?:\.(\d{1,6}))?$/;

/**
 * Micro-euro as EUR with six decimals: 12_340_000 is "12.340000". Throws RangeError when the number is not a safe
 * integer.
 */
export function formatEur(micros: number): string {
  if (!Number.isSafeInteger(micros)) throw new RangeError('An amount must be a safe integer of micro-euro.');
  const digits = String(Math.abs(micros)).padStart(DECIMALS + 1, '0');
  return `${micros < 0 ? '-' : ''}${digits.slice(0, -DECIMALS)}.${digits.slice(-DECIMALS)}`;
}

/** EUR with up to six decimals, such as "25" or "-0.5", as micro-euro. Throws `validation_error`. */
export function parseEur(text: string): number {
  const match = SHAPE.exec(text);
  const [sign, whole = '', fraction = ''] = (match ?? []).slice(1);
  const micros = Number(whole) * EUR + Number(fraction.padEnd(DECIMALS, '0'));
  if (!match || !Number.isSafeInteger(micros)) {
    throw new ServiceError('validation_error', 'An amount must be EUR with at most six decimals, such as "12.34".');
  }
  return sign === '-' && micros !== 0 ? -micros : micros;
}
