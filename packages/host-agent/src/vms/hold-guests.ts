// Pauses all guests of the host while the host's disk is nearly full (disk-reserve.ts), because a running guest can
// always write to its disk.
import { setTimeout as delay } from 'node:timers/promises';
import type { DiskReserve } from '../storage/disk-reserve.ts';
import type { VmHost, VmLog } from './vm-host.ts';

/** While the disk is short, how often VMs that were started meanwhile are paused too. */
const AGAIN_MS = 250;

/**
 * From now on, pauses the guests when the disk gets short, and resumes them when it has room. The returned function
 * ends that; paused guests stay paused.
 */
export function holdGuests(vms: VmHost, reserve: DiskReserve, log: VmLog): () => void {
  const ending = new AbortController();
  const toAll = (what: 'hold' | 'letGo') =>
    Promise.all(
      vms
        .running()
        .map((vm) => vm[what]().catch((err) => log.warn({ vm_id: vm.vmId, err }, `a guest was not told: ${what}`))),
    );
  let applying = false;
  const apply = async () => {
    if (applying) return;
    applying = true;
    while (reserve.isShort && !ending.signal.aborted) {
      await toAll('hold');
      await delay(AGAIN_MS, undefined, { signal: ending.signal, ref: false }).catch(() => {});
    }
    applying = false;
    if (!ending.signal.aborted) await toAll('letGo');
  };
  const onChange = () => void apply();
  reserve.events.on('change', onChange);
  onChange();
  return () => {
    ending.abort();
    reserve.events.off('change', onChange);
  };
}
