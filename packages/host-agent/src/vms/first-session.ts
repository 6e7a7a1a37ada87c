// Opens the first session with a VM's guest agent.
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';

/** Resolves with the session. Rejects as soon as the VM ends or `giveUp` aborts. */
export async function firstSession(vm: Vm, giveUp: AbortSignal): Promise<Guest> {
  const guest = vm.connectGuest(giveUp);
  const died = vm.exited.then((exit) => Promise.reject(new Error(exit.reason)));
  died.catch(() => {});
  guest.catch(() => {});
  return Promise.race([guest, died]);
}
