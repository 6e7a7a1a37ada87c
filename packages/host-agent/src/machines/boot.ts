// From nothing to a guest that has its identity by a cold boot: QEMU, the first session, the identity step. A boot under
// emulation can hang, so one that stays silent is ended and tried once more.

import { ServiceError } from '@sandbar/contract/errors.ts';
import { BOOT_PATIENCE_MS } from '../config.ts';
import type { Guest, GuestIdentity } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { firstSession } from '../vms/first-session.ts';
import type { VmHost, VmPlan } from '../vms/vm-host.ts';

/** How long a boot may stay silent, by try; the second limit is for a host that is merely slow. */
const SILENCE_LIMITS_MS = [BOOT_PATIENCE_MS, 30_000] as const;

export type BootLog = { warn(details: object, message: string): void };
export type StartedMachine = { vm: Vm; guest: Guest };

export type BootRequest = {
  plan: VmPlan;
  identity: GuestIdentity;
  /** The disk is smaller than it should be and is made that large before the guest looks, bytes. */
  growTo: number | undefined;
  /** Factor on the time that a boot may stay silent. */
  patience: number;
  log: BootLog;
  abort: AbortSignal;
};

/** Boots and resolves when the guest has acknowledged its identity. On failure, or when `abort` fires, nothing runs. */
export async function bootMachine(vms: VmHost, request: BootRequest): Promise<StartedMachine> {
  const { plan, identity, growTo, patience, log, abort } = request;
  let failure = new Error('not tried');
  for (const silenceLimitMs of SILENCE_LIMITS_MS) {
    throwIfDestroyed(abort);
    const vm = await vms.launch(plan);
    try {
      if (growTo !== undefined) await vm.growDisk(growTo);
      const guest = await firstSession(vm, AbortSignal.any([abort, AbortSignal.timeout(silenceLimitMs * patience)]));
      await guest.setIdentity(growTo === undefined ? identity : { ...identity, diskBytes: growTo });
      return { vm, guest };
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
      const consoleText = (await vm.readConsole()).trim().slice(-2000);
      log.warn({ machine_id: identity.machineId, err: failure, console: consoleText }, 'a boot failed');
      await vms.discard(vm);
    }
  }
  throw new ServiceError('host_unavailable', `the machine did not start: ${failure.message}`, {
    retryAfterSec: 5,
    cause: failure,
  });
}

/** Throws `conflict`. */
export function throwIfDestroyed(abort: AbortSignal): void {
  if (abort.aborted) throw new ServiceError('conflict', 'the machine was destroyed while it started');
}
