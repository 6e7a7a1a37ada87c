// Compares rules for placing machines on a fleet, by simulation. No host, database or service is needed.

import { parseArgs } from 'node:util';
import { usedShare } from '@sandbar/control-plane/hosts/placement.ts';
import { NO_ROOM } from '@sandbar/control-plane/hosts/room.ts';
import { MEAN_LIFETIME_SEC, type SimulatedHost } from './placement/fleet.ts';
import { RULES } from './placement/rules.ts';
import { simulate } from './placement/simulate.ts';

const { values } = parseArgs({
  options: {
    hosts: { type: 'string', default: '1000' },
    machines: { type: 'string', default: '100000' },
    seconds: { type: 'string', default: '2000' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string' },
    memory: { type: 'string', default: '2' },
  },
});
const machines = Number(values.machines);
const seconds = Number(values.seconds);
const overcommit = { memory: Number(values.memory), vcpus: 8, disk: 2 };
const settings = {
  ...{ hosts: Number(values.hosts), arrivalsPerSec: machines / MEAN_LIFETIME_SEC, refreshSec: 1 },
  ...{ seconds, settledSec: seconds / 2, overcommit, seed: Number(values.seed) },
};
const percent = (share: number) => (share * 100).toFixed(1);
console.log(`${settings.hosts} hosts, ${settings.arrivalsPerSec.toFixed(0)} new machines a second`);
const HEADINGS = [
  'rule',
  'machines placed, there at the end',
  'refused: all, of 32 GiB, of 64 GiB',
  'used memory at a refusal, %',
  'conflicts for 1,000 placed',
  'used share of hosts: mean, standard deviation, %',
  'most on one host in 100 ms',
  'decision p50, p99, µs',
];
console.log(`| ${HEADINGS.join(' | ')} |\n|${'---|'.repeat(HEADINGS.length)}`);
for (const [name, rule] of Object.entries(RULES)) {
  if (values.only && !name.includes(values.only)) continue;
  // The share of the disk counts too, as for a machine that needs a new disk.
  const shareOf = (host: SimulatedHost) => usedShare(host, { ...NO_ROOM, diskGb: 0.001 }, overcommit);
  const done = simulate(rule, settings, shareOf);
  const sorted = done.decisionMs.sort((a, b) => a - b);
  const at = (part: number) => ((sorted[Math.floor(sorted.length * part)] ?? 0) * 1000).toFixed(0);
  const large = (gib: number) => done.refusedBySize.get(gib * 1024) ?? 0;
  const row = [
    name,
    `${done.placed}, ${done.machines}`,
    `${done.refused}, ${large(32)}, ${large(64)}`,
    done.refused === 0 ? '' : percent(done.usedAtRefusal),
    ((done.conflicts / done.placed) * 1000).toFixed(2),
    `${percent(done.meanShare)}, ${percent(done.spread)}`,
    done.mostOnOneHost,
    `${at(0.5)}, ${at(0.99)}`,
  ];
  console.log(`| ${row.join(' | ')} |`);
}
