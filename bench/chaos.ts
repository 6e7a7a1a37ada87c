// `npm run chaos`: breaks a service at random while clients with nearly empty wallets work with it, and checks that
// nothing is lost, done twice, charged wrongly or left behind. README.md lists faults and checks. The exit code is 1
// when a check found a difference. Needs root.
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { readChaosArguments } from './chaos/arguments.ts';
import { ChaosBed } from './chaos/bed.ts';
import { makeFaults } from './chaos/harm.ts';
import { planFaults } from './chaos/plan.ts';
import { Journal } from './kills/journal.ts';
import type { Kill } from './kills/killer.ts';
import { runUnderKills } from './kills/run.ts';
import { describeRun } from './kills/summary.ts';

/** The most machines that each client has. */
const MACHINES_OF_CLIENTS = [2, 1, 1, 1];

const { stop } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main(args: readonly string[]): Promise<number> {
  const { faults, seed, log } = readChaosArguments(args);
  progress.say(`Seed ${seed}, log ${log}`);
  progress.say(`The same faults again: npm run chaos -- --faults ${faults} --seed ${seed}`);
  if (process.getuid?.() !== 0) throw new Problem('This makes a network namespace and mounts a disk, so it needs root');
  const journal = new Journal(log);
  const bed = await ChaosBed.start(progress);
  let done: Kill[] = [];
  let isWhole = false;
  try {
    const plan = planFaults(seed, faults);
    done = await progress.step(`${faults} faults under load`, () => runFaults(bed, { plan, seed, journal }));
    isWhole = true;
  } finally {
    if (!isWhole || journal.differences.length > 0) bed.keepLogs(`${log}.service`);
    for (const leak of await bed.close()) journal.difference(`left behind: ${leak}`);
  }
  for (const line of describeRun(done, journal, 'faults')) progress.say(line);
  return journal.differences.length === 0 ? 0 : 1;
}

type Round = { plan: ReturnType<typeof planFaults>; seed: number; journal: Journal };

async function runFaults(bed: ChaosBed, { plan, seed, journal }: Round): Promise<Kill[]> {
  const { fleet, postgres } = bed;
  const account = { email: 'keeper@chaos.test', tier: 'enterprise', billing_mode: 'unmetered' };
  const { api_key } = await fleet.operator('/admin/accounts', account);
  return runUnderKills({
    home: fleet.homes[0] ?? '',
    service: { baseUrl: fleet.url, apiKey: String(api_key) },
    seed,
    kills: plan.length,
    machinesOfClients: MACHINES_OF_CLIENTS,
    journal,
    signal: stop,
    harm: (killing) => makeFaults(bed, seed, plan, killing),
    databaseUrl: postgres.url,
  });
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  if (!stop.aborted) process.stderr.write(`${error instanceof Problem ? messageOf(error) : (error as Error).stack}\n`);
  return 1;
});
process.exit();
