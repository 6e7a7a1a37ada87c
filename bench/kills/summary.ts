// The summary of a run, as lines of text.
import type { Journal } from './journal.ts';
import type { Kill } from './killer.ts';

export function describeRun(kills: readonly Kill[], { acts, retries, differences }: Journal): string[] {
  const byVictim = Object.entries(Object.groupBy(kills, ({ victim }) => victim));
  const longest = kills.toSorted((one, other) => other.backMs - one.backMs)[0];
  return [
    `kills: ${kills.length} (${byVictim.map(([victim, those]) => `${victim} ${those?.length}`).join(', ')})`,
    `acts: ${[...acts.values()].reduce((sum, number) => sum + number, 0)} (${describeCounts(acts)})`,
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
