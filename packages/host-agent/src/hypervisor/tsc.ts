// Reads the rate of the host's time stamp counter. The agent tells emulated guests this rate, because a guest that
// measures the rate itself hangs in 3 % of boots ("tsc: Unable to calibrate against PIT").
import { readFileSync } from 'node:fs';

/**
 * Returns the counter's rate in kHz, from `bogomips` in /proc/cpuinfo. On x86 the kernel computes bogomips from that
 * rate (twice the MHz), so the result is exact to 5 kHz. Unlike `cpu MHz`, it does not vary with the current clock
 * speed. Throws when the line is missing, as on hosts that are not x86.
 */
export function readTscKhz(cpuinfo = readFileSync('/proc/cpuinfo', 'utf8')): number {
  const bogomips = /^bogomips\s*:\s*([\d.]+)/m.exec(cpuinfo)?.[1];
  if (bogomips === undefined) throw new Error('/proc/cpuinfo has no bogomips line: this is not an x86 host');
  return Math.round((Number(bogomips) * 1000) / 2);
}
