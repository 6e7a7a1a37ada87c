// Describes the host's processor. A guest under KVM uses the processor's features directly, so its saved state may not
// run on another processor. The description leaves out the version of the microcode, because a microcode update that
// matters to guests changes the flags or the flaws.
import { readFileSync } from 'node:fs';

const FACTS = /^(?:model name|flags|bugs)\s*:.*$/gm;

/** Returns model, flags and known flaws of the first processor, as lines of /proc/cpuinfo. */
export function describeProcessor(cpuinfo = readFileSync('/proc/cpuinfo', 'utf8')): string[] {
  return cpuinfo.split('\n\n')[0]?.match(FACTS) ?? [];
}
