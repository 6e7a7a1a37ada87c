// Formats the summary of a run as lines of text.
import type { Journal } from './journal.ts';
import type { Kill } from './killer.ts';
import type { WalletFigures } from './verdict/billing.ts';

/** `what`: what was done to the service, in the plural. */
export function describeRun(kills: readonly Kill[], journal: Journal, what = 'kills'): string[] {
  const { acts, retries, differences } = journal;
  const byVictim = Object.entries(Object.groupBy(kills, ({ victim }) => victim));
  const longest = kills.toSorted((one, other) => other.backMs - one.backMs)[0];
  return [
    `${what}: ${kills.length} (${byVictim.map(([victim, those]) => `${victim} ${those?.length}`).join(', ')})`,
    `acts: ${journal.countActs()} (${describeCounts(acts)})`,
    `retries: ${describeCounts(retries) || 'none'}`,
    ...(longest
      ? [`longest time until the first good answer: ${longest.backMs.toFixed(0)} ms (${longest.victim})`]
      : []),
    describeWallets([...journal.wallets.values()]),
    `differences: ${differences.length}`,
    ...differences.map((difference) => `  ${difference}`),
  ];
}

function describeWallets(wallets: readonly WalletFigures[]): string {
  const sum = (name: 'charges' | 'guardStops') => wallets.reduce((total, figures) => total + figures[name], 0);
  const unpaidMs = Math.max(0, ...wallets.map((figures) => figures.unpaidMs));
  return (
    `wallets: ${sum('charges')} charges, ${sum('guardStops')} stops by the spend guard, ` +
    `at most ${(unpaidMs / 1000).toFixed(1)} s from an empty wallet to the end of a machine's run`
  );
}

const describeCounts = (counts: ReadonlyMap<string, number>): string =>
  [...counts]
    .toSorted(([, one], [, other]) => other - one)
    .map(([kind, number]) => `${kind} ${number}`)
    .join(', ');
