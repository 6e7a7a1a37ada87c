// Names what the saved memory of a machine depends on, so that the control plane can find a host that may resume it.
// The host itself still compares all that matters before it resumes (resume-needs.ts).
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { describeProcessor } from './processor.ts';
import { seriesOf } from './resume-needs.ts';

export type MachineProcessor = {
  isolation: 'kvm' | 'emulated';
  /** The processor that guests on KVM see: `host`, or the name of one of QEMU's models. */
  cpuModel: string;
  qemuPath: string;
  /** Such as `7.2.22`. */
  qemuVersion: string;
};

/**
 * Returns a text that is equal on hosts that give machines the same processor. Maintenance releases of QEMU do not
 * change it. `host`: lines of /proc/cpuinfo with model, flags and flaws.
 */
export function processorSignature(
  { isolation, cpuModel, qemuPath, qemuVersion }: MachineProcessor,
  host: readonly string[] = describeProcessor(),
): string {
  const qemu = `${basename(qemuPath)} ${seriesOf(qemuVersion)}`;
  if (isolation === 'emulated') return `emulated, ${qemu}`;
  if (cpuModel !== 'host') return `${cpuModel}, ${qemu}`;
  const model = host.find((line) => line.startsWith('model name'))?.replace(/^.*?:\s*/, '') ?? 'unknown';
  const details = createHash('sha256').update(host.join('\n')).digest('hex').slice(0, 16);
  return `${model} ${details}, ${qemu}`;
}
