// How sizes and times of files are written.
const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** A number of bytes with three digits and a decimal unit, such as "12.3 kB". */
export function formatBytes(bytes: number): string {
  let [value, unit] = [bytes, 0];
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toPrecision(value >= 10 ? 3 : 2)} ${UNITS[unit]}`;
}

const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/** The time of an ISO timestamp in the browser's zone and language. */
export const formatTime = (iso: string): string => dateTime.format(new Date(iso));
