// Finds out for how long machines ran unpaid: from the moment when the account's use had cost all its money until its
// machines stopped. The moment does not depend on when the use was charged.
import { costUntil, type Part, total } from './recount.ts';

/** Spans of the account's clock in which it had no money. `until`: the credit that ended it, or Infinity. */
type Span = { from: number; until: number };

export function spansWithoutMoney(parts: readonly Part[], credits: readonly { at: number; micros: bigint }[]): Span[] {
  const spans: Span[] = [];
  let money = 0n;
  for (const [index, { at, micros }] of credits.entries()) {
    money += micros;
    const until = credits[index + 1]?.at ?? Number.POSITIVE_INFINITY;
    const isEmpty = (instant: number) => total(costUntil(parts, instant)) >= money;
    const from = firstInstant(at, Math.min(until, lastInstant(parts, at)), isEmpty);
    const last = spans.at(-1);
    if (from === undefined) continue;
    if (last && last.until === from) last.until = until;
    else spans.push({ from, until });
  }
  return spans;
}

/** An instant after which costs do not grow any more, or that is later than any test lasts. */
const lastInstant = (parts: readonly Part[], least: number): number =>
  Math.max(least, ...parts.map(({ from, until }) => Math.min(until, from + 30 * 86_400_000)));

/** The first millisecond in [from, until] at which `test` is true. From then on it must stay true. */
function firstInstant(from: number, until: number, test: (instant: number) => boolean): number | undefined {
  if (!test(until)) return undefined;
  let [low, high] = [from, until];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Each time that a machine ran in a span without money, by the account's clock. */
export function unpaidRuns(parts: readonly Part[], spans: readonly Span[]): Span[] {
  const running = parts.filter(({ size }) => size.vcpus > 0);
  return spans.flatMap((span) =>
    running
      .filter(({ from, until }) => from < span.until && until > span.from)
      .map(({ until }) => ({ from: span.from, until: Math.min(until, span.until) })),
  );
}
