// From nothing to a guest that has its identity: QEMU, the first session, the identity step. A cold boot under emulation
// can hang, so one that stays silent is ended and tried once more.
import { rmSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest, GuestIdentity } from '../guest/guest.ts';
import type { Hypervisor, Vm, VmSpec } from '../hypervisor/driver.ts';

/** A boot takes 1.5 to 3 s under emulation; the second limit is for a host that is merely slow. */
const SILENCE_LIMITS_MS = [8_000, 30_000] as const;

export type BootLog = { warn(details: object, message: string): void };

/** Boots and resolves when the guest has acknowledged its identity. On failure, or when `abort` fires, nothing runs. */
export async function bootMachine(
  hypervisor: Hypervisor,
  spec: VmSpec,
  identity: GuestIdentity,
  log: BootLog,
  abort: AbortSignal,
): Promise<{ vm: Vm; guest: Guest }> {
  let failure = new Error('not tried');
  for (const silenceLimitMs of SILENCE_LIMITS_MS) {
    if (abort.aborted) throw new ServiceError('conflict', 'the machine was destroyed while it started');
    rmSync(spec.runDir, { recursive: true, force: true });
    await mkdir(spec.runDir, { recursive: true, mode: 0o700 });
    const vm = await hypervisor.launch(spec);
    try {
      const guest = await firstSession(vm, AbortSignal.any([abort, AbortSignal.timeout(silenceLimitMs)]));
      await guest.setIdentity(identity);
      return { vm, guest };
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
      const consoleText = (await vm.readConsole()).trim().slice(-2000);
      log.warn({ machine_id: spec.machineId, err: failure, console: consoleText }, 'a boot failed');
      await vm.end();
    }
  }
  throw new ServiceError('host_unavailable', `the machine did not start: ${failure.message}`, {
    retryAfterSec: 5,
    cause: failure,
  });
}

async function firstSession(vm: Vm, giveUp: AbortSignal): Promise<Guest> {
  const guest = vm.connectGuest(giveUp);
  const died = vm.exited.then((exit) => Promise.reject(new Error(exit.reason)));
  died.catch(() => {});
  guest.catch(() => {});
  return Promise.race([guest, died]);
}
