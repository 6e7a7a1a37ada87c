// How long a new API key is accepted.
const DAY_MS = 86_400_000;

/** `days` is the value of a form's option: a number of days, or "never" for a key that does not expire. */
export const LIFETIMES = [
  { days: '1', label: 'in a day' },
  { days: '7', label: 'in a week' },
  { days: '30', label: 'in 30 days' },
  { days: '90', label: 'in 90 days' },
  { days: '365', label: 'in a year' },
  { days: 'never', label: 'never' },
] as const;

/** The expiry time of a key that is created at `now`; undefined for a key that does not expire. */
export function expiryAfter(days: string, now: Date): Date | undefined {
  return days === 'never' ? undefined : new Date(now.getTime() + Number(days) * DAY_MS);
}
