// The request that changes when a machine expires.
import type { Schemas } from '../../api/client.ts';
import { type Expiry, expirySec } from '../../machines/create-body.ts';

/** An empty field leaves the time as it is; only `isRemoved` takes it away. */
export function expiryUpdate(expiry: Expiry, isRemoved: boolean): Schemas['MachineUpdate'] {
  const sec = expirySec(expiry);
  if (sec === null && !isRemoved) return { on_expiry: expiry.action };
  return { on_expiry: expiry.action, expires_in_sec: isRemoved ? null : sec };
}
