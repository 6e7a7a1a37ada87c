// Starts a machine with a cold boot: starts QEMU, opens the first session with the guest agent, and gives the guest its
// identity. Under emulation a boot can hang. So a boot whose guest agent does not answer in time is ended, and a second
// boot is tried.

import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import { BOOT_PATIENCE_MS } from '../config.ts';
import type { Guest, GuestIdentity } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { CloneLease } from '../network/address-leases.ts';
import { firstSession } from '../vms/first-session.ts';
import type { VmHost, VmPlan } from '../vms/vm-host.ts';

/**
 * How long to wait for the guest agent in the first and in the second boot. The second limit allows for a slow host.
 */
const SILENCE_LIMITS_MS = [BOOT_PATIENCE_MS, 30_000] as const;

export type BootLog = { warn(details: object, message: string): void };
/**
 * `lease`: that of the machine's clone, whose address the machine has; undefined when it has the address of its
 * specification. `hasNames`: whether it has the names of the lease too, which older guest agents do not take.
 */
export type StartedMachine = { vm: Vm; guest: Guest; lease?: CloneLease | undefined; hasNames?: boolean };

export type BootRequest = {
  plan: VmPlan;
  identity: GuestIdentity;
  /** New size of the root disk in bytes, if it has to be enlarged before the guest looks at it. */
  growTo: number | undefined;
  /** Factor for the time limits, larger on slow hosts. */
  patience: number;
  tracing: Tracing;
  log: BootLog;
  abort: AbortSignal;
};

/**
 * Boots a machine. Resolves when the guest has acknowledged its identity. Throws `conflict` when `abort` fires before a
 * boot, and `host_unavailable` when both boots fail; no VM runs then.
 */
export async function bootMachine(vms: VmHost, request: BootRequest): Promise<StartedMachine> {
  const { plan, identity, growTo, patience, tracing, log, abort } = request;
  let failure = new Error('not tried');
  for (const silenceLimitMs of SILENCE_LIMITS_MS) {
    throwIfDestroyed(abort);
    const vm = await tracing.span('vm.launch', {}, () => vms.launch(plan));
    try {
      if (growTo !== undefined) await vm.growDisk(growTo);
      const giveUp = AbortSignal.any([abort, AbortSignal.timeout(silenceLimitMs * patience)]);
      const guest = await tracing.span('guest.session', {}, () => firstSession(vm, giveUp));
      const complete = growTo === undefined ? identity : { ...identity, diskBytes: growTo };
      await tracing.span('guest.identity', {}, () => guest.setIdentity(complete));
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

/** Throws `conflict` when `abort` has fired, which means that the machine was destroyed. */
export function throwIfDestroyed(abort: AbortSignal): void {
  if (abort.aborted) throw new ServiceError('conflict', 'the machine was destroyed while it started');
}
