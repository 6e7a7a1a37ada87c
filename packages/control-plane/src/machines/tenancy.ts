// Who may have machines where: emulation is no security boundary, so a host without hardware virtualisation serves its
// owner only, unless the operator says otherwise.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Isolation } from '@sandbar/contract/machine.ts';
import type { App } from '../app.ts';
import type { AccountRow } from '../db/tables.ts';

/** Whether an account's machines may run with this isolation. */
export function admitsAccount(app: App, { isolation }: { isolation: Isolation }, account: AccountRow): boolean {
  return isolation === 'kvm' || account.is_owner || app.config.allowEmulatedTenants;
}

export const emulatedOnly = (): ServiceError =>
  new ServiceError(
    'forbidden',
    'This service has no hardware virtualisation, and emulated machines are no security boundary: accounts beyond the ' +
      'first are refused. The operator can allow them with SANDBAR_ALLOW_EMULATED_TENANTS=1.',
  );
