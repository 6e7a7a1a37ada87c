// One run: clients put load on a service while its processes are killed. Then the service is compared with what the
// clients know. The caller starts and stops the service.
import { homePaths } from '@sandbar/contract/home.ts';
import { databaseUrlOf } from '@sandbar/service/supervise/definitions.ts';
import { Casualties } from './casualties.ts';
import { checkEverything, removeEverything, runClient } from './client.ts';
import type { ClientContext } from './client-context.ts';
import type { Journal } from './journal.ts';
import { startKeeper } from './keeper.ts';
import { type Kill, type Killing, killRepeatedly } from './killer.ts';
import { Ledger } from './ledger.ts';
import { createRandom } from './random.ts';
import type { Service } from './requests.ts';
import { checkBilling } from './verdict/billing.ts';
import { checkDoctor } from './verdict/doctor.ts';
import { checkFeed, readNewestTime } from './verdict/feed.ts';
import { checkQuotas } from './verdict/quotas.ts';
import { createWallet, setRunPrices, topUpForChecks } from './wallet.ts';

export type Run = {
  /** The service's data directory. Its files tell which processes to kill. */
  home: string;
  /** The service with the key of its first account, which pays nothing. Each client gets a prepaid account. */
  service: Service;
  seed: number;
  kills: number;
  /** The most machines that each client has at a time. */
  machinesOfClients: readonly number[];
  journal: Journal;
  signal: AbortSignal;
  /** Does the harm of the run. By default, kills processes of the service in `home`. */
  harm?: (killing: Killing) => Promise<Kill[]>;
  /**
   * Whether the service has several hosts. Then the clients use no volumes, which can only be attached on their host.
   */
  isFleet?: boolean;
  /** The database of the service. By default, the one in `home`. */
  databaseUrl?: string;
};

/**
 * Runs the clients and the killer to their end, then checks everything. Returns the kills. Operations and differences
 * are in the journal. When it returns or throws, nothing of the run goes on.
 */
export async function runUnderKills(given: Run): Promise<Kill[]> {
  const failing = new AbortController();
  const run = { ...given, signal: AbortSignal.any([given.signal, failing.signal]) };
  const contexts = await createContexts(run);
  const work: Promise<unknown>[] = [];
  try {
    const since = await readNewestTime(contexts[0]);
    const { kills, loads } = await startLoadAndKills(run, contexts);
    work.push(kills, ...loads);
    // If a client fails, the run ends: without that client's load the result would mean less.
    const [done] = await Promise.all([kills, ...loads]);
    given.journal.write('the kills have ended');
    await giveVerdict(run, contexts, since);
    return done;
  } catch (error) {
    failing.abort(error);
    await Promise.allSettled(work);
    throw error;
  }
}

/** The first context belongs to the keeper, and each other one to a client. */
type Contexts = [ClientContext, ...ClientContext[]];

async function startLoadAndKills(run: Run, [keeping, ...clients]: Contexts) {
  const keeper = await startKeeper(keeping);
  let isOver = false;
  const loads = clients.map((client, at) => runClient(client, run.machinesOfClients[at] ?? 1, () => isOver));
  const random = createRandom(run.seed, 0);
  const kills = (run.harm ?? killRepeatedly)({ ...run, random, casualties: keeping.casualties, keeper }).finally(() => {
    isOver = true;
  });
  return { kills, loads };
}

async function giveVerdict(run: Run, contexts: Contexts, since: string): Promise<void> {
  const { home, journal, databaseUrl = databaseUrlOf(homePaths(home).postgresSocketDir) } = run;
  const [keeping] = contexts;
  const check = async () => {
    for (const sentence of await checkDoctor(home)) journal.difference(sentence);
    for (const context of contexts) for (const sentence of await checkQuotas(context)) journal.difference(sentence);
    for (const sentence of await checkFeed(contexts, keeping.ledger, since)) journal.difference(sentence);
    for (const context of contexts) await checkWallet(databaseUrl, context);
  };
  // From now on no wallet may become empty, because the checks start machines and use them for a while.
  for (const context of contexts) if (context.wallet !== undefined) await topUpForChecks(context, context.wallet);
  await Promise.all(contexts.map(checkEverything));
  journal.write('the clients have checked their disks');
  await check();
  await Promise.all(contexts.map(removeEverything));
  journal.write('the clients have removed everything');
  await check();
}

async function checkWallet(databaseUrl: string, { who, wallet, casualties, journal }: ClientContext): Promise<void> {
  if (wallet === undefined) return;
  const { differences, figures } = await checkBilling(databaseUrl, { who, casualties, ...wallet });
  for (const sentence of differences) journal.difference(sentence);
  journal.wallets.set(who, figures);
}

async function createContexts({
  home,
  service,
  seed,
  machinesOfClients,
  journal,
  signal,
  isFleet = false,
}: Run): Promise<Contexts> {
  const shared = { journal, signal, ledger: new Ledger(), casualties: new Casualties() };
  let last = 0;
  const create = (who: string, stream: number, own: Pick<ClientContext, 'service' | 'wallet'>): ClientContext => ({
    ...shared,
    ...own,
    who,
    random: createRandom(seed, stream),
    machines: [],
    volumes: [],
    isFleet,
    nextNumber: () => ++last,
  });
  await setRunPrices(home);
  const clients: ClientContext[] = [];
  for (const at of machinesOfClients.keys()) {
    const who = `client${at + 1}`;
    const { wallet, apiKey } = await createWallet(home, who);
    clients.push(create(who, at + 2, { service: { ...service, apiKey }, wallet }));
  }
  return [create('keeper', 1, { service, wallet: undefined }), ...clients];
}
