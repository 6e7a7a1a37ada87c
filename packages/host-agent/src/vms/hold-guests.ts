// Pauses all guests of the host while the host's disk is nearly full (disk-reserve.ts), because a running guest can
// always write to its disk.
import { setTimeout as delay } from 'node:timers/promises';
import type { DiskReserve } from '../storage/disk-reserve.ts';
import type { VmHost, VmLog } from './vm-host.ts';

/**
 * The time between two attempts, in milliseconds. While the disk is nearly full, each attempt also pauses VMs that were
 * started in the meantime. Afterwards, attempts go on until every VM has been resumed.
 */
const AGAIN_MS = 250;

/**
 * From now on, pauses the guests when the disk gets short, and resumes them when it has room. The returned function
 * ends that; paused guests stay paused.
 */
export function holdGuests(vms: VmHost, reserve: DiskReserve, log: VmLog): () => void {
  const ending = new AbortController();
  /** Resolves with whether all VMs did it within AGAIN_MS. So a VM that hangs does not delay the others. */
  const toAll = async (what: 'hold' | 'letGo'): Promise<boolean> => {
    const did = vms.running().map((vm) =>
      vm[what]().then(
        () => true,
        (err: unknown) => {
          log.warn({ vm_id: vm.vmId, err }, `a guest was not told: ${what}`);
          return false;
        },
      ),
    );
    const late = delay(AGAIN_MS, [false], { ref: false });
    return (await Promise.race([Promise.all(did), late])).every((one) => one);
  };
  let applying = false;
  const apply = async () => {
    if (applying) return;
    applying = true;
    while (!ending.signal.aborted) {
      const isShort = reserve.isShort;
      const areAllDone = await toAll(isShort ? 'hold' : 'letGo');
      if (areAllDone && !isShort && !reserve.isShort) break;
      await delay(AGAIN_MS, undefined, { signal: ending.signal, ref: false }).catch(() => {});
    }
    applying = false;
  };
  const onChange = () => void apply();
  reserve.events.on('change', onChange);
  onChange();
  return () => {
    ending.abort();
    reserve.events.off('change', onChange);
  };
}
