// Decides which accounts may run machines on which host. Emulation (no hardware virtualisation) does not isolate
// tenants securely, so an emulating host runs machines of the service's owner only, unless the operator allows other
// accounts.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import type { App } from '../app.ts';
import type { AccountRow } from '../db/tables.ts';

/** Returns true if the account may run machines on a host with this isolation (`kvm` or emulation). */
export function admitsAccount(app: App, { isolation }: { isolation: Isolation }, account: AccountRow): boolean {
  return isolation === 'kvm' || account.is_owner || app.config.allowEmulatedTenants;
}

export const emulatedOnly = (): ServiceError =>
  new ServiceError(
    'forbidden',
    'This service has no hardware virtualisation, and emulated machines are no security boundary: accounts beyond the ' +
      'first are refused. The operator can allow them with SANDBAR_ALLOW_EMULATED_TENANTS=1.',
  );
