// Tests that rounded amounts still add up.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { formatCents, roundToCents, toCents, toMicros } from './cents.ts';

const sum = (amounts: readonly bigint[]) => amounts.reduce((total, amount) => total + amount, 0n);

/** A small generator of pseudo-random numbers (Lehmer), so that a failure can be repeated. */
function createRandom(seed: bigint) {
  let state = seed;
  return (below: bigint): bigint => {
    state = (state * 48_271n) % 2_147_483_647n;
    return state % below;
  };
}

describe('cents', () => {
  it('are parsed and formatted exactly', () => {
    assert.deepEqual(['12.340000', '-0.500000', '0.000001', '-0.000001', '0.000000'].map(toMicros), [
      12_340_000n,
      -500_000n,
      1n,
      -1n,
      0n,
    ]);
    assert.deepEqual([1234n, -50n, 5n, -5n, 0n].map(formatCents), ['12.34', '-0.50', '0.05', '-0.05', '0.00']);
    assert.deepEqual([4_999n, 5_000n, -5_000n, -5_001n, 15_000n].map(toCents), [0n, 1n, 0n, -1n, 2n]);
  });

  it('that are missing after rounding down are added to the amounts that lost most', () => {
    assert.deepEqual(roundToCents(0n, [3_334n, 3_334n, 3_332n], 10_000n), [1n, 0n, 0n]);
    assert.deepEqual(roundToCents(0n, [-3_333n, -6_667n], -10_000n), [0n, -1n]);
    assert.deepEqual(roundToCents(4_999n, [1n], 5_000n), [1n]);
    assert.deepEqual(roundToCents(5_000n, [-1n], 4_999n), [-1n]);
    assert.deepEqual(roundToCents(7n, [], 7n), []);
  });

  it('add up for random balances and amounts, and rounding changes no amount by a cent or more', () => {
    const random = createRandom(7n);
    for (let round = 0; round < 5_000; round++) {
      const scale = [3n, 9_999n, 30_000n, 10n ** 12n][Number(random(4n))] ?? 1n;
      const amount = () => (random(2n) === 0n ? -1n : 1n) * (random(3n) === 0n ? random(3n) * 5_000n : random(scale));
      const opening = amount();
      const amounts = Array.from({ length: Number(random(12n)) }, amount);
      const closing = opening + sum(amounts);
      const cents = roundToCents(opening, amounts, closing);
      const told = `${opening} ${amounts.join(' ')}`;
      assert.equal(toCents(opening) + sum(cents), toCents(closing), told);
      cents.forEach((value, index) => {
        const distance = value * 10_000n - (amounts[index] ?? 0n);
        assert(distance > -10_000n && distance < 10_000n, told);
      });
    }
  });
});
