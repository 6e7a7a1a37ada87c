// Formats the summary of a run as lines of text.
import type { Journal } from './journal.ts';
import type { Kill } from './killer.ts';

export function describeRun(kills: readonly Kill[], journal: Journal): string[] {
  const { acts, retries, differences } = journal;
  const byVictim = Object.entries(Object.groupBy(kills, ({ victim }) => victim));
  const longest = kills.toSorted((one, other) => other.backMs - one.backMs)[0];
  return [
    `kills: ${kills.length} (${byVictim.map(([victim, those]) => `${victim} ${those?.length}`).join(', ')})`,
    `acts: ${journal.countActs()} (${describeCounts(acts)})`,
    `retries: ${describeCounts(retries) || 'none'}`,
    ...(longest
      ? [`longest time from a kill to the first good answer: ${longest.backMs.toFixed(0)} ms (${longest.victim})`]
      : []),
    `differences: ${differences.length}`,
    ...differences.map((difference) => `  ${difference}`),
  ];
}

const describeCounts = (counts: ReadonlyMap<string, number>): string =>
  [...counts]
    .toSorted(([, one], [, other]) => other - one)
    .map(([kind, number]) => `${kind} ${number}`)
    .join(', ');
