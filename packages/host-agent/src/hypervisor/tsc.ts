// The host's time stamp counter rate. An emulated guest that has to find it out by itself hangs in 3 % of its boots
// ("tsc: Unable to calibrate against PIT"), so it is told.
import { readFileSync } from 'node:fs';

/**
 * kHz, from `bogomips` of /proc/cpuinfo: on x86 the kernel derives it from the counter's own rate (twice the MHz), so it
 * is exact to 5 kHz and does not follow the clock of the moment as `cpu MHz` does.
 */
export function readTscKhz(cpuinfo = readFileSync('/proc/cpuinfo', 'utf8')): number {
  const bogomips = /^bogomips\s*:\s*([\d.]+)/m.exec(cpuinfo)?.[1];
  if (bogomips === undefined) throw new Error('/proc/cpuinfo has no bogomips line: this is not an x86 host');
  return Math.round((Number(bogomips) * 1000) / 2);
}
