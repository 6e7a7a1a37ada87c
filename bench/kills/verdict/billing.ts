// Recomputes from a client's activity feed what the client had to pay, and compares the result and the client's own
// record of its top-ups with its wallet. All amounts and times must agree exactly: to the micro-euro and to the
// millisecond.
import { USAGE_KINDS } from '@sandbar/contract/billing.ts';
import { messageOf } from '@sandbar/service/problem.ts';
import type { Casualties } from '../casualties.ts';
import { type Books, type LedgerRow, type Meter, readBooks } from './books.ts';
import { costUntil, type FeedEntry, type Unsaid, type Use, usesOf } from './recount.ts';

export type Payer = {
  who: string;
  accountId: string;
  /** The amounts of all acknowledged top-ups in EUR, by their references. */
  topUps: ReadonlyMap<string, string>;
  casualties: Casualties;
};

/** What the run did to the wallet. `unpaidMs`: the longest time that a machine ran with an empty wallet. */
export type WalletFigures = { charges: number; guardStops: number; unpaidMs: number };

/** Returns a sentence for each difference, and figures for the summary. */
export async function checkBilling(
  databaseUrl: string,
  payer: Payer,
): Promise<{ differences: string[]; figures: WalletFigures }> {
  const books = await readBooks(databaseUrl, payer.accountId);
  const { uses, differences } = recount(books, payer.casualties);
  const guardStops = books.feed.filter(isGuardStop);
  return {
    differences: [
      ...differences,
      ...compareMeters(uses, books),
      ...checkLedger(books),
      ...checkCharges(uses, books),
      ...checkTopUps(books, payer.topUps),
      ...guardStops.flatMap((stop) => checkGuardStop(stop, books)),
    ].map((sentence) => `${payer.who}, billing: ${sentence}`),
    figures: {
      charges: books.ledger.filter(({ kind }) => kind === 'charge').length,
      guardStops: guardStops.length,
      unpaidMs: Math.max(0, ...uses.map((use) => longestUnpaid(use, books.ledger))),
    },
  };
}

export const isGuardStop = ({ actor, action }: Pick<FeedEntry, 'actor' | 'action'>): boolean =>
  actor === 'system:spend_guard' && action === 'machine.stopped';

function recount(books: Books, casualties: Casualties): { uses: Use[]; differences: string[] } {
  try {
    return { uses: usesOf(books.feed, unsaidIn(books, casualties)), differences: [] };
  } catch (error) {
    return { uses: [], differences: [messageOf(error)] };
  }
}

/**
 * Reads from the meters only what the feed does not have, such as the time of a failure. A kept disk may end only where
 * a new machine begins. A machine may fail only if its VM was killed.
 */
function unsaidIn({ meters, feed, keptDisks }: Books, casualties: Casualties): Unsaid {
  const lastOf = new Map(meters.map((meter) => [meter.resourceId, meter]));
  const creates = new Set(feed.filter(({ action }) => action === 'machine.created').map(({ at }) => at));
  return {
    keptDiskOf: (machineId) => keptDisks.get(machineId) ?? null,
    takenAt: (diskId) => {
      const until = lastOf.get(diskId)?.until ?? Number.POSITIVE_INFINITY;
      return creates.has(until) ? until : undefined;
    },
    failedAt: (machineId) => (casualties.killsOf(machineId) > 0 ? lastOf.get(machineId)?.until : undefined),
    snapshotMb: (snapshotId) => lastOf.get(snapshotId)?.size.snapshot_mb ?? 0,
  };
}

function compareMeters(uses: readonly Use[], { meters, priceId }: Books): string[] {
  const describe = ({ resourceId, size, from, until }: Use | Meter) =>
    `${resourceId} from ${from} to ${until} with ${JSON.stringify(size)}`;
  const [used, metered] = [new Set(uses.map(describe)), new Set(meters.map(describe))];
  return [
    ...[...used].filter((use) => !metered.has(use)).map((use) => `the feed has a use without a meter: ${use}`),
    ...[...metered]
      .filter((meter) => !used.has(meter))
      .map((meter) => `a meter has a use that is not in the feed: ${meter}`),
    ...(metered.size === meters.length ? [] : ['two meters are the same']),
    ...meters
      .filter((meter) => meter.priceId !== priceId)
      .map((meter) => `the price list is wrong for the meter ${describe(meter)}`),
  ];
}

/** Checks that each row's books sum to zero, and that its balance and the account's balance are the sums of amounts. */
function checkLedger({ ledger, balance }: Books): string[] {
  let sum = 0n;
  const wrong = ledger.flatMap(({ at, books, amount, ...row }) => {
    sum += amount;
    const total = books.reduce((all, book) => all + book, 0n);
    return [
      ...(total === 0n ? [] : [`the books of the entry at ${at} sum to ${total}`]),
      ...(row.balance === sum ? [] : [`the entry at ${at} has the balance ${row.balance} instead of ${sum}`]),
    ];
  });
  return balance === sum ? wrong : [...wrong, `the balance is ${balance}, and the entries sum to ${sum}`];
}

/** Checks that each charge equals the recount from the end of the previous charge to its own end, by kind of use. */
function checkCharges(uses: readonly Use[], { ledger, prices, chargedUntil }: Books): string[] {
  let charged = costUntil([], 0, prices);
  const wrong = ledger.flatMap(({ chargedTo, sales, at }) => {
    if (chargedTo === undefined) return [];
    const cost = costUntil(uses, chargedTo, prices);
    const before = charged;
    charged = cost;
    return USAGE_KINDS.flatMap((kind) => {
      const due = cost[kind] - before[kind];
      return sales[kind] === due ? [] : [`the charge at ${at} for ${kind} is ${sales[kind]} instead of ${due}`];
    });
  });
  const cost = costUntil(uses, chargedUntil, prices);
  const missing = USAGE_KINDS.filter((kind) => cost[kind] !== charged[kind]);
  return [...wrong, ...missing.map((kind) => `${kind} was charged for ${charged[kind]} of ${cost[kind]} in all`)];
}

/** Checks that every acknowledged top-up is in the ledger once, and no other credit except the first. */
function checkTopUps({ ledger }: Books, topUps: ReadonlyMap<string, string>): string[] {
  const credits = ledger.filter(({ kind }) => kind !== 'charge' && kind !== 'bonus');
  const found = credits.map(({ kind, reference, amount }) => `${kind} ${reference} of ${amount}`).toSorted();
  const paid = [...topUps].map(([reference, eur]) => `top-up ${reference} of ${microsOf(eur)}`).toSorted();
  return [
    ...found.filter((entry, at) => !paid.includes(entry) || found.indexOf(entry) !== at).map((it) => `unpaid ${it}`),
    ...paid.filter((entry) => !found.includes(entry)).map((entry) => `the ledger lacks ${entry}`),
    ...(ledger.filter(({ kind }) => kind === 'bonus').length === 1 ? [] : ['the first credit is not there once']),
  ];
}

/** Top-ups are in whole cents. */
const microsOf = (eur: string): bigint => BigInt(Math.round(Number(eur) * 100)) * 10_000n;

/** Checks that the guard stopped a machine only if the wallet was empty at some time since the machine started. */
function checkGuardStop({ machine_id, at }: FeedEntry, { feed, ledger }: Books): string[] {
  const isStart = (entry: FeedEntry) => entry.action === 'machine.created' || entry.action === 'machine.started';
  const start = feed.findLast((entry) => entry.machine_id === machine_id && entry.at < at && isStart(entry))?.at ?? 0;
  const since = ledger.findLast((row) => row.at <= start)?.at ?? 0;
  const wasEmpty = ledger.some((row) => row.at >= since && row.at <= at && row.balance <= 0n);
  return wasEmpty ? [] : [`the guard stopped ${machine_id} at ${at}, and the wallet was not empty since ${since}`];
}

/** The longest continuous time that the machine ran while the ledger's balance was zero or less. */
function longestUnpaid({ size, from, until }: Use, ledger: readonly LedgerRow[]): number {
  if (size.vcpus === 0) return 0;
  let longest = 0;
  let emptyAt: number | undefined;
  const end = Number.isFinite(until) ? until : (ledger.at(-1)?.at ?? from);
  for (const { at, balance } of ledger) {
    if (emptyAt === undefined && balance <= 0n) emptyAt = at;
    if (emptyAt !== undefined) longest = Math.max(longest, Math.min(at, end) - Math.max(emptyAt, from));
    if (balance > 0n) emptyAt = undefined;
  }
  return longest;
}
