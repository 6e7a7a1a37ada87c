// Holds all guests of the host while its disk is short, because a guest that runs can always write to its disk.
import { setTimeout as delay } from 'node:timers/promises';
import type { DiskReserve } from '../storage/disk-reserve.ts';
import type { VmHost, VmLog } from './vm-host.ts';

/** How often VMs are looked for that were started while the disk was short. */
const AGAIN_MS = 250;

/** Holds and lets go the guests from now on. The returned function ends that; guests that are held stay so. */
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
