// The operator's routes that suspend, resume and delete accounts.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { deleteAccount, resumeAccount, suspendAccount } from '../accounts/status.ts';
import type { App } from '../app.ts';
import { ACCOUNT_PATH, AccountParams } from './account-store.ts';
import { changeAccount } from './change-account.ts';

const Nothing = Type.Object({}, { additionalProperties: false });

export function addAccountStatusRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  for (const [name, change] of Object.entries({
    suspend: suspendAccount,
    resume: resumeAccount,
    delete: deleteAccount,
  })) {
    server.post(`${ACCOUNT_PATH}/${name}`, { schema: { params: AccountParams, body: Nothing } }, async ({ params }) => {
      const { details } = await changeAccount(app, params.account, (tx, { id }) => change(tx, id));
      // The spend guard and the reclaimer see the change in their next pass.
      app.reconcileSoon();
      return details;
    });
  }
}
