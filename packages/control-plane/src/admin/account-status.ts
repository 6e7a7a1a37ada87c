// The operator's routes that suspend, resume and delete accounts.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { AccountDetails } from '@sandbar/contract/admin.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { deleteAccount, resumeAccount, suspendAccount } from '../accounts/status.ts';
import type { App } from '../app.ts';
import { ACCOUNT_PATH, AccountParams } from './account-store.ts';
import { type Check, changeAccount } from './change-account.ts';

const Nothing = Type.Object({}, { additionalProperties: false });

const CHANGES = { suspend: suspendAccount, resume: resumeAccount, delete: deleteAccount };
export type StatusChange = keyof typeof CHANGES;

export function addAccountStatusRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  for (const change of Object.keys(CHANGES) as StatusChange[]) {
    server.post(`${ACCOUNT_PATH}/${change}`, { schema: { params: AccountParams, body: Nothing } }, ({ params }) =>
      changeStatus(app, params.account, change),
    );
  }
}

/** Makes the change. `check` may refuse the account by throwing. */
export async function changeStatus(
  app: App,
  idOrEmail: string,
  change: StatusChange,
  check: Check = () => undefined,
): Promise<AccountDetails> {
  const { details } = await changeAccount(app, idOrEmail, (tx, account) => {
    check(account);
    return CHANGES[change](tx, account.id);
  });
  // The spend guard and the reclaimer see the change in their next pass.
  app.reconcileSoon();
  return details;
}
