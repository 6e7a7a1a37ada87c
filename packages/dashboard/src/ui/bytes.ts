// Formats an amount of bytes in the largest unit in which it is at least 1.
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

/** Such as "120 B" or "1.5 GiB", with at most one decimal. */
export function formatBytes(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toFixed(1))} ${UNITS[power]}`;
}
