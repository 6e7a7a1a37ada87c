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

/** Returns the kills. The acts and the differences are in the journal. */
export async function runUnderKills(run: Run): Promise<Kill[]> {
  const { home, seed, kills, machinesOfClients, journal, signal } = run;
  const [keeping, ...clients] = createContexts(run);
  const { ledger, casualties } = keeping;
  const since = await readNewestTime(keeping);
  const keeper = await startKeeper(keeping);

  let isOver = false;
  const loads = clients.map((client, at) =>
    runClient(client, machinesOfClients[at] ?? 1, () => isOver || signal.aborted),
  );
  const random = createRandom(seed, 0);
  const killing = killRepeatedly({ home, kills, random, casualties, keeper, journal, signal }).finally(() => {
    isOver = true;
  });
  // A client that fails ends the run, because its part of the load is missing.
  const [done] = await Promise.all([killing, ...loads]);
  journal.write('the kills have ended');

  const all = [keeping, ...clients];
  const check = async () => {
    for (const sentence of await checkDoctor(home)) journal.difference(sentence);
    for (const sentence of await checkQuotas(keeping)) journal.difference(sentence);
    for (const sentence of await checkFeed(keeping, ledger, since)) journal.difference(sentence);
  };
  await Promise.all(all.map(checkEverything));
  journal.write('the clients have checked their disks');
  await check();
  await Promise.all(all.map(removeEverything));
  journal.write('the clients have removed everything');
  await check();
  return done;
}

/** The first context belongs to the keeper. */
function createContexts({ service, seed, machinesOfClients, journal }: Run): [ClientContext, ...ClientContext[]] {
  const shared = { service, journal, ledger: new Ledger(), casualties: new Casualties() };
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
