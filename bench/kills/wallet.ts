// The prepaid account of a client. Prices are so high, and top-ups so small, that the wallet is empty again and again
// during a run: creates and starts are then refused with 402, and the spend guard stops the client's machines.
import { setTimeout as delay } from 'node:timers/promises';
import type { Account } from '@sandbar/contract/account.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { postAdmin } from '@sandbar/service/admin-client.ts';
import type { ClientContext } from './client-context.ts';
import { sendPatiently } from './requests.ts';

/** EUR for a unit and an hour. The smallest machine costs about two cents a second while it runs. */
const PRICES = { vcpu_hour: '70', memory_gib_hour: '40', storage_gib_hour: '2.3', snapshot_gib_hour: '1.7' };
const FIRST_CREDIT_EUR = '0.5';
/** The smallest and the largest top-up, cents. They pay for about five seconds and for about a minute of a machine. */
const TOP_UP_CENTS = [10, 120] as const;
/** The amount that each wallet gets for the checks after the kills, EUR. */
const ENOUGH_EUR = '1000';
const PATIENCE_MS = 600_000;
const PAUSE_MS = 200;

export type Wallet = {
  accountId: string;
  adminSocket: string;
  /** The amounts of all acknowledged top-ups in EUR, by their references. */
  topUps: Map<string, string>;
};

/** Puts the prices of the run in force. Call it before any wallet is made. */
export async function setRunPrices(home: string): Promise<void> {
  await post(homePaths(home).adminSocket, '/admin/prices', PRICES);
}

/** Makes a prepaid account with a little money. Returns its wallet and its API key. */
export async function createWallet(home: string, who: string): Promise<{ wallet: Wallet; apiKey: string }> {
  const { adminSocket } = homePaths(home);
  const email = `${who}@kills.test`;
  const request = { email, tier: 'enterprise', billing_mode: 'prepaid', credit_eur: FIRST_CREDIT_EUR };
  const { account_id, api_key } = await post(adminSocket, '/admin/accounts', request);
  return { wallet: { accountId: String(account_id), adminSocket, topUps: new Map() }, apiKey: String(api_key) };
}

/** Tops up by a random small amount. */
export function topUp(context: ClientContext, wallet: Wallet): Promise<void> {
  const [least, most] = TOP_UP_CENTS;
  return credit(context, wallet, (context.random.integer(least, most) / 100).toFixed(2));
}

/** Tops up by an amount that lasts until the end of the run. */
export const topUpForChecks = (context: ClientContext, wallet: Wallet): Promise<void> =>
  credit(context, wallet, ENOUGH_EUR);

/** Call it after a request was refused with 402. Checks that the wallet is empty, and then tops up. */
export async function payForRefused(context: ClientContext, wallet: Wallet, about: string): Promise<void> {
  const { journal, who } = context;
  const { body } = await sendPatiently(context.service, { method: 'GET', path: '/v1/account' }, context);
  const { balance } = body as Account;
  if (Number(balance) > 0) journal.difference(`${who}: ${about} answered 402 with ${balance} EUR in the wallet`);
  journal.retry(who, '402', about);
  await topUp(context, wallet);
}

/** Repeats a top-up until it is acknowledged. Its reference makes sure that it counts once. */
async function credit(context: ClientContext, { accountId, adminSocket, topUps }: Wallet, eur: string): Promise<void> {
  const reference = `${context.who}-${context.nextNumber()}`;
  const path = `/admin/accounts/${accountId}/credit`;
  for (const until = performance.now() + PATIENCE_MS; ; await delay(PAUSE_MS, undefined, { signal: context.signal })) {
    const failure = await post(adminSocket, path, { eur, as: 'top-up', reference }).then(
      () => undefined,
      (error: Error) => error,
    );
    if (failure === undefined) break;
    if (performance.now() > until) throw failure;
    context.journal.retry(context.who, 'top-up', failure.message);
  }
  topUps.set(reference, eur);
  context.journal.act(context.who, 'top-up', `${reference} of ${eur} EUR`);
}

async function post(adminSocket: string, path: string, request: object): Promise<Record<string, unknown>> {
  const { status, body } = await postAdmin(adminSocket, path, request);
  if (status !== 200 && status !== 201) throw new Error(`${path} answered ${status}: ${JSON.stringify(body)}`);
  return body;
}
