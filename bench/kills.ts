// Kills processes of a service at random while clients with nearly empty wallets work with it, and checks that nothing
// is lost, done twice, charged wrongly or left behind. README.md lists the checks. The exit code is 1 when a check
// found a difference.
//   node_modules/node/bin/node bench/kills.ts --kills 200 --seed 1
import { cpSync } from 'node:fs';
import { homePaths } from '@sandbar/contract/home.ts';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { readKillsArguments } from './kills/arguments.ts';
import { Journal } from './kills/journal.ts';
import { runUnderKills } from './kills/run.ts';
import { describeRun } from './kills/summary.ts';
import { BenchService } from './service/bench-service.ts';

/** How many clones the pool keeps ready. Only one, so that some creates must clone or boot a VM themselves. */
const POOL_SIZE = 1;
/** The most machines that each of the six clients has: nine in all. */
const MACHINES_OF_CLIENTS = [2, 2, 2, 1, 1, 1];

const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main(args: readonly string[]): Promise<number> {
  const { kills, seed, log } = readKillsArguments(args);
  const journal = new Journal(log);
  progress.say(`Seed ${seed}, log ${log}`);
  // Each client has an account of its own. Without KVM, the service lets only its first account run machines unless
  // this variable is set.
  process.env.SANDBAR_ALLOW_EMULATED_TENANTS = '1';
  const bench = await BenchService.prepare(POOL_SIZE, progress, stop);
  const { home } = bench.config;
  try {
    const { credentials } = await bench.in('pool');
    const service = { baseUrl: credentials.base_url, apiKey: credentials.api_key };
    const run = { home, service, seed, kills, machinesOfClients: MACHINES_OF_CLIENTS, journal, signal: stop };
    const done = await runUnderKills(run);
    await bench.stop(hurry);
    if (journal.differences.length > 0) keepLogs(home, log);
    for (const leak of await bench.remove()) journal.difference(`left behind: ${leak}`);
    for (const line of describeRun(done, journal)) progress.say(line);
    return journal.differences.length === 0 ? 0 : 1;
  } catch (error) {
    await bench.stop(hurry);
    keepLogs(home, log);
    await bench.remove();
    throw error;
  }
}

/** Copies the logs of the service beside the log of the run, before the data directory is removed. */
const keepLogs = (home: string, log: string): void =>
  cpSync(homePaths(home).logs, `${log}.service`, { recursive: true });

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  if (!stop.aborted) process.stderr.write(`${error instanceof Problem ? messageOf(error) : (error as Error).stack}\n`);
  return 1;
});
