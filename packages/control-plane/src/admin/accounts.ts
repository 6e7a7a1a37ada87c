// The operator's routes for accounts. Each command makes all its changes in one transaction.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  ACCOUNT_LIMITS,
  ACCOUNT_RATES,
  AccountCreate,
  AccountKey,
  AccountOverrides,
  AccountTier,
  type NewAccount,
  type NewKey,
  type NewPassword,
} from '@sandbar/contract/admin.ts';
import type { FastifyInstance } from 'fastify';
import { requireNotDeleted } from '../accounts/status.ts';
import { insertAccount } from '../accounts/store.ts';
import { insertKey } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import { generatePassword, setPassword } from '../auth/password.ts';
import { addEntry } from '../billing/ledger.ts';
import { inTransaction } from '../db/transaction.ts';
import { toDetails, toSummary } from './account-record.ts';
import { ACCOUNT_PATH, AccountParams, findAccount, listAccounts, updateAccount } from './account-store.ts';
import { changeLiveAccount } from './change-account.ts';
import { CREDIT_NOTE, readFirstCredit } from './credit.ts';

const params = AccountParams;
const path = ACCOUNT_PATH;

export function addAccountRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const { db, config } = app;

  server.get('/admin/accounts', async () => ({ accounts: (await listAccounts(db)).map(toSummary) }));

  server.post('/admin/accounts', { schema: { body: AccountCreate } }, ({ body }) => createAccount(app, body));

  server.get(path, { schema: { params } }, async (request) =>
    toDetails(await findAccount(db, request.params.account), config.rates),
  );

  server.post(`${path}/tier`, { schema: { params, body: AccountTier } }, (request) =>
    changeLiveAccount(app, request.params.account, (tx, { id }) => updateAccount(tx, id, { tier: request.body.tier })),
  );

  server.post(`${path}/limits`, { schema: { params, body: AccountOverrides } }, (request) => {
    const { body } = request;
    const limits = ACCOUNT_LIMITS.filter((name) => body[name] !== undefined);
    const rates = ACCOUNT_RATES.filter((name) => body[name] !== undefined);
    const set = Object.fromEntries([
      ...limits.map((name) => [`limit_${name}`, body[name]]),
      ...rates.map((name) => [name, body[name]]),
    ]);
    return changeLiveAccount(app, request.params.account, (tx, { id }) => updateAccount(tx, id, set));
  });

  server.post(
    `${path}/password`,
    { schema: { params } },
    (request): Promise<NewPassword> =>
      inTransaction(db, async (tx) => {
        const account = await findAccount(tx, request.params.account);
        requireNotDeleted(account);
        const { id, email } = account;
        const password = generatePassword();
        await setPassword(tx, id, password);
        return { account_id: id, email, password };
      }),
  );

  server.post(`${path}/keys`, { schema: { params, body: AccountKey } }, async (request): Promise<NewKey> => {
    const account = await findAccount(db, request.params.account);
    requireNotDeleted(account);
    const { id } = account;
    const { scope = 'full', name = 'made by the operator' } = request.body;
    return { account_id: id, api_key: await insertKey(db, id, scope, name) };
  });
}

/** Makes an account with a first key, a password and, when `credit_eur` is above 0, a bonus. */
function createAccount(app: App, request: AccountCreate): Promise<NewAccount> {
  const { tier = 'free', credit_eur } = request;
  const email = request.email.toLowerCase();
  const billingMode = request.billing_mode ?? (credit_eur === undefined ? 'unmetered' : 'prepaid');
  const amountMicros = credit_eur === undefined ? 0 : readFirstCredit(credit_eur);
  const password = generatePassword();
  return inTransaction(app.db, async (tx) => {
    const accountId = await insertAccount(tx, { email, tier, billingMode });
    if (amountMicros !== 0) await addEntry(tx, { accountId, kind: 'bonus', amountMicros, note: CREDIT_NOTE });
    await setPassword(tx, accountId, password);
    return { account_id: accountId, api_key: await insertKey(tx, accountId, 'full', 'first key'), email, password };
  });
}
