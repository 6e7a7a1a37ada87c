// The operator's routes for accounts. Each command makes all its changes in one transaction.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  ACCOUNT_LIMITS,
  ACCOUNT_RATES,
  AccountCreate,
  type AccountDetails,
  AccountKey,
  AccountOperator,
  AccountOverrides,
  type AccountSummaryList,
  AccountTier,
  type NewAccount,
  type NewKey,
  type NewPassword,
} from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance } from 'fastify';
import { requireNotDeleted } from '../accounts/status.ts';
import { insertAccount } from '../accounts/store.ts';
import { insertKey } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import { generatePassword, setPassword } from '../auth/password.ts';
import { addEntry } from '../billing/ledger.ts';
import { inTransaction } from '../db/transaction.ts';
import { toDetails, toSummary } from './account-record.ts';
import {
  ACCOUNT_PATH,
  AccountParams,
  findAccount,
  findAccountToChange,
  listAccounts,
  updateAccount,
} from './account-store.ts';
import { type Check, changeLiveAccount } from './change-account.ts';
import { CREDIT_NOTE, readFirstCredit } from './credit.ts';

const params = AccountParams;
const path = ACCOUNT_PATH;

export function addAccountRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const { db } = app;

  server.get('/admin/accounts', () => summariseAccounts(app));

  server.post('/admin/accounts', { schema: { body: AccountCreate } }, ({ body }) => createAccount(app, body));

  server.get(path, { schema: { params } }, (request) => showAccount(app, request.params.account));

  server.post(`${path}/tier`, { schema: { params, body: AccountTier } }, (request) =>
    changeTier(app, request.params.account, request.body),
  );

  server.post(`${path}/limits`, { schema: { params, body: AccountOverrides } }, (request) =>
    overrideLimits(app, request.params.account, request.body),
  );

  server.post(`${path}/operator`, { schema: { params, body: AccountOperator } }, (request) =>
    nameOperator(app, request.params.account, request.body),
  );

  server.post(`${path}/password`, { schema: { params } }, (request) => resetPassword(app, request.params.account));

  server.post(`${path}/keys`, { schema: { params, body: AccountKey } }, async (request): Promise<NewKey> => {
    const account = await findAccount(db, request.params.account);
    requireNotDeleted(account);
    const { id } = account;
    const { scope = 'full', name = 'made by the operator' } = request.body;
    return { account_id: id, api_key: await insertKey(db, id, scope, name) };
  });
}

export const summariseAccounts = async ({ db }: App): Promise<AccountSummaryList> => ({
  accounts: (await listAccounts(db)).map(toSummary),
});

export const showAccount = async ({ db, config }: App, idOrEmail: string): Promise<AccountDetails> =>
  toDetails(await findAccount(db, idOrEmail), config.rates);

/** The checks of these functions refuse an account by throwing. By default, every account may be changed. */
const anyAccount: Check = () => undefined;

export const changeTier = (
  app: App,
  idOrEmail: string,
  { tier }: AccountTier,
  check = anyAccount,
): Promise<AccountDetails> =>
  changeLiveAccount(app, idOrEmail, (tx, account) => {
    check(account);
    return updateAccount(tx, account.id, { tier });
  });

/** Names an account as an operator, or takes that back. Throws `conflict` if the first account would be no operator. */
const nameOperator = (app: App, idOrEmail: string, { is_operator }: AccountOperator): Promise<AccountDetails> =>
  changeLiveAccount(app, idOrEmail, async (tx, { id, is_owner }) => {
    if (is_owner && !is_operator) throw new ServiceError('conflict', 'The first account is always an operator.');
    await updateAccount(tx, id, { is_operator });
  });

/** Sets a new random password and ends all sessions. */
export const resetPassword = ({ db }: App, idOrEmail: string, check = anyAccount): Promise<NewPassword> =>
  inTransaction(db, async (tx) => {
    const account = await findAccountToChange(tx, idOrEmail);
    requireNotDeleted(account);
    check(account);
    const { id, email } = account;
    const password = generatePassword();
    await setPassword(tx, id, password);
    return { account_id: id, email, password };
  });

/** Sets or removes overrides of the tier's limits and of the configured rates. */
export function overrideLimits(
  app: App,
  idOrEmail: string,
  asked: AccountOverrides,
  check = anyAccount,
): Promise<AccountDetails> {
  const limits = ACCOUNT_LIMITS.filter((name) => asked[name] !== undefined);
  const rates = ACCOUNT_RATES.filter((name) => asked[name] !== undefined);
  const set = Object.fromEntries([
    ...limits.map((name) => [`limit_${name}`, asked[name]]),
    ...rates.map((name) => [name, asked[name]]),
  ]);
  return changeLiveAccount(app, idOrEmail, (tx, account) => {
    check(account);
    return updateAccount(tx, account.id, set);
  });
}

/** Makes an account with a first key, a password and, when `credit_eur` is above 0, a bonus. */
export function createAccount(app: App, request: AccountCreate): Promise<NewAccount> {
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
