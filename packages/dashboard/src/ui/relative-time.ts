// Formats a time relative to now, such as "3 minutes ago" or "in 2 hours".

/** From the largest unit to the smallest, each with its seconds. A month and a year have their average lengths. */
const UNITS = [
  ['year', 31_557_600],
  ['month', 2_629_800],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
] as const;

/** The clocks of the browser and the server differ a little, so times this close to now are shown without a number. */
const NEAR_SEC = 5;

const format = new Intl.RelativeTimeFormat('en', { numeric: 'always' });

/** `at`: an ISO date and time. `nowMs`: milliseconds since 1970. The number is rounded down to a whole unit. */
export function relativeTime(at: string, nowMs: number): string {
  const seconds = (Date.parse(at) - nowMs) / 1000;
  if (Number.isNaN(seconds)) return at;
  if (Math.abs(seconds) < NEAR_SEC) return 'just now';
  for (const [unit, length] of UNITS) {
    const count = Math.trunc(seconds / length);
    if (count !== 0) return format.format(count, unit);
  }
  return 'just now';
}
