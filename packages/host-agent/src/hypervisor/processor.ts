// The host's processor, which a guest under KVM has seen: its saved state may not run on another one.
import { readFileSync } from 'node:fs';

const FACTS = /^(?:model name|flags|microcode)\s*:.*$/gm;

/** Model, flags and microcode of the first processor, as /proc/cpuinfo tells them. */
export function describeProcessor(cpuinfo = readFileSync('/proc/cpuinfo', 'utf8')): string[] {
  return cpuinfo.split('\n\n')[0]?.match(FACTS) ?? [];
}
