// Rounds amounts of micro-euro to cents, so that the cents on an invoice add up. If each amount were rounded by itself,
// their sum could differ from the rounded total. So all amounts are rounded down, and each missing cent is added to one
// of the amounts that lost most by this (the largest remainder method).

const MICROS_PER_CENT = 10_000n;

/** Converts an amount in EUR with six decimals, such as "-0.500000", to micro-euro. */
export function toMicros(eur: string): bigint {
  const [whole = '', decimals = ''] = eur.replace('-', '').split('.');
  const micros = BigInt(whole) * 1_000_000n + BigInt(decimals);
  return eur.startsWith('-') ? -micros : micros;
}

/** Rounds micro-euro to the nearest cent; a half is rounded up. */
export const toCents = (micros: bigint): bigint => floorDivide(micros + MICROS_PER_CENT / 2n, MICROS_PER_CENT);

/** Cents as EUR with two decimals, such as "-0.50". */
export function formatCents(cents: bigint): string {
  const digits = String(cents < 0n ? -cents : cents).padStart(3, '0');
  return `${cents < 0n ? '-' : ''}${digits.slice(0, -2)}.${digits.slice(-2)}`;
}

/**
 * Rounds amounts in micro-euro to cents. `opening` plus the amounts must equal `closing`. Then the same holds for the
 * returned cents and for both balances rounded by `toCents`. Each result is its amount rounded down, or one cent more.
 */
export function roundToCents(opening: bigint, amounts: readonly bigint[], closing: bigint): bigint[] {
  const rounded = amounts.map((amount) => floorDivide(amount, MICROS_PER_CENT));
  const lost = amounts.map((amount, index) => amount - (rounded[index] ?? 0n) * MICROS_PER_CENT);
  const missing = toCents(closing) - toCents(opening) - rounded.reduce((sum, cents) => sum + cents, 0n);
  const mostLost = [...lost.keys()].sort((a, b) => Number((lost[b] ?? 0n) - (lost[a] ?? 0n)));
  const raised = new Set(mostLost.slice(0, Number(missing)));
  return rounded.map((cents, index) => (raised.has(index) ? cents + 1n : cents));
}

function floorDivide(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor;
  return dividend % divisor < 0n ? quotient - 1n : quotient;
}
