// The operator's routes for the money of an account.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { AccountCredit, type AccountCredited } from '@sandbar/contract/admin.ts';
import { AccountBilling, InvoiceQuery } from '@sandbar/contract/admin-billing.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { readInvoice } from '../billing/invoice.ts';
import { changeBillingMode } from '../billing/reprice.ts';
import { isUniqueViolation } from '../db/failures.ts';
import { ACCOUNT_PATH, AccountParams, findAccount } from './account-store.ts';
import { changeAccount, changeLiveAccount } from './change-account.ts';
import { creditAccount, readCredit } from './credit.ts';

export function addAccountMoneyRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.post(
    `${ACCOUNT_PATH}/credit`,
    { schema: { params: AccountParams, body: AccountCredit } },
    ({ params, body }) => credit(app, params.account, body),
  );

  server.post(
    `${ACCOUNT_PATH}/billing`,
    { schema: { params: AccountParams, body: AccountBilling } },
    ({ params, body }) =>
      changeLiveAccount(app, params.account, async (tx, { id, billing_mode }) => {
        // Setting the same mode again must not restart the time after which the reclaimer acts.
        if (billing_mode !== body.billing_mode) await changeBillingMode(tx, id, body.billing_mode);
      }),
  );

  server.get(
    `${ACCOUNT_PATH}/invoice`,
    { schema: { params: AccountParams, querystring: InvoiceQuery } },
    async ({ params, query }) => readInvoice(app.db, await findAccount(app.db, params.account), query.month),
  );
}

/** Credits or corrects a wallet. A deleted account can be credited too, because its payments may need a correction. */
export async function credit(app: App, idOrEmail: string, asked: AccountCredit): Promise<AccountCredited> {
  const amountMicros = readCredit(asked);
  const { details, result } = await changeAccount(app, idOrEmail, (tx, { id }) =>
    creditAccount(tx, id, amountMicros, asked),
  ).catch((error: unknown) => {
    // A parallel request for another account has just used the reference.
    if (!isUniqueViolation(error, 'ledger_reference_key')) throw error;
    throw new ServiceError('conflict', 'The reference belongs to a different entry. Nothing was changed.');
  });
  return { ...details, is_new: result };
}
