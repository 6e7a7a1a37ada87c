// The run: clients put load on a service, processes of it are killed, and then everything is compared with what the clients
// know. The service is started and stopped by the caller.
import { Casualties } from './casualties.ts';
import { checkEverything, removeEverything, runClient } from './client.ts';
import type { ClientContext } from './client-context.ts';
import type { Journal } from './journal.ts';
import { startKeeper } from './keeper.ts';
import { type Kill, killRepeatedly } from './killer.ts';
import { Ledger } from './ledger.ts';
import { createRandom } from './random.ts';
import type { Service } from './requests.ts';
import { checkDoctor } from './verdict/doctor.ts';
import { checkFeed, readNewestTime } from './verdict/feed.ts';
import { checkQuotas } from './verdict/quotas.ts';

export type Run = {
  /** The data directory of the service, whose processes are killed. */
  home: string;
  service: Service;
  seed: number;
  kills: number;
  /** For each client, how many machines it has at most. */
  machinesOfClients: readonly number[];
  journal: Journal;
  signal: AbortSignal;
};

/** Returns the kills. The acts and the differences are in the journal. Nothing of the run goes on after its end. */
export async function runUnderKills(given: Run): Promise<Kill[]> {
  const failing = new AbortController();
  const run = { ...given, signal: AbortSignal.any([given.signal, failing.signal]) };
  const contexts = createContexts(run);
  const work: Promise<unknown>[] = [];
  try {
    const since = await readNewestTime(contexts[0]);
    const { kills, loads } = await startLoadAndKills(run, contexts);
    work.push(kills, ...loads);
    // A client that fails ends the run, because its part of the load is missing.
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

/** The first belongs to the keeper. */
type Contexts = [ClientContext, ...ClientContext[]];

async function startLoadAndKills(run: Run, [keeping, ...clients]: Contexts) {
  const keeper = await startKeeper(keeping);
  let isOver = false;
  const loads = clients.map((client, at) => runClient(client, run.machinesOfClients[at] ?? 1, () => isOver));
  const random = createRandom(run.seed, 0);
  const kills = killRepeatedly({ ...run, random, casualties: keeping.casualties, keeper }).finally(() => {
    isOver = true;
  });
  return { kills, loads };
}

async function giveVerdict({ home, journal }: Run, contexts: Contexts, since: string): Promise<void> {
  const [keeping] = contexts;
  const check = async () => {
    for (const sentence of await checkDoctor(home)) journal.difference(sentence);
    for (const sentence of await checkQuotas(keeping)) journal.difference(sentence);
    for (const sentence of await checkFeed(keeping, keeping.ledger, since)) journal.difference(sentence);
  };
  await Promise.all(contexts.map(checkEverything));
  journal.write('the clients have checked their disks');
  await check();
  await Promise.all(contexts.map(removeEverything));
  journal.write('the clients have removed everything');
  await check();
}

function createContexts({ service, seed, machinesOfClients, journal, signal }: Run): Contexts {
  const shared = { service, journal, signal, ledger: new Ledger(), casualties: new Casualties() };
  let last = 0;
  const create = (who: string, stream: number): ClientContext => ({
    ...shared,
    who,
    random: createRandom(seed, stream),
    machines: [],
    volumes: [],
    nextNumber: () => ++last,
  });
  return [create('keeper', 1), ...machinesOfClients.map((_, at) => create(`client${at + 1}`, at + 2))];
}
