// Describes the host's processor. A guest under KVM uses the processor's features directly, so its saved state may not
// run on another processor.
import { readFileSync } from 'node:fs';

const FACTS = /^(?:model name|flags|microcode)\s*:.*$/gm;

/** Returns model, flags and microcode of the first processor, as lines of /proc/cpuinfo. */
export function describeProcessor(cpuinfo = readFileSync('/proc/cpuinfo', 'utf8')): string[] {
  return cpuinfo.split('\n\n')[0]?.match(FACTS) ?? [];
}
