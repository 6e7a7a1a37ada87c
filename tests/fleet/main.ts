// `npm run test:fleet`: three hosts in network namespaces, which have joined, and two replicas of the control plane. New
// machines are spread; a host is cut off for a moment and for long; a volume moves and a host is drained; then replicas
// are killed at random and restarted under load. The exit code is 1 when something was lost, done twice or left behind.
// Needs root.
import { mkdtemp, rm } from 'node:fs/promises';
import { readConfig } from '@sandbar/service/config.ts';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { startTestPostgres } from '@sandbar/test-runner/test-postgres.ts';
import { Journal } from '../../bench/kills/journal.ts';
import { runUnderKills } from '../../bench/kills/run.ts';
import { describeRun } from '../../bench/kills/summary.ts';
import { readFleetArguments } from './arguments.ts';
import { Fleet } from './bed/fleet.ts';
import { callWith, checkLongCut, checkShortCut, checkSpread } from './cuts.ts';
import { checkMoves } from './moves.ts';
import { harmReplicas } from './replica-harm.ts';

const HOSTS = 3;
const REPLICAS = 2;
/** Short, so that the test need not wait for minutes. */
const HOST_LEASE_SEC = 40;
const MACHINES_OF_CLIENTS = [1, 1, 1];

const { stop } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main(args: readonly string[]): Promise<number> {
  const { minutes, seed, log } = readFleetArguments(args);
  if (process.getuid?.() !== 0) throw new Problem('This test makes network namespaces, so it needs root');
  const folder = await mkdtemp('/tmp/sbfp-');
  const config = readConfig({ ...process.env, SANDBAR_HOME: folder }, 0);
  progress.say(`Seed ${seed}, log ${log}`);
  const { user } = await setUp(config, progress);
  const postgres = await progress.step('PostgreSQL', () => startTestPostgres(config, user));
  const journal = new Journal(log);
  try {
    const options = { hosts: HOSTS, replicas: REPLICAS, databaseUrl: postgres.url, hostLeaseSec: HOST_LEASE_SEC };
    const fleet = await progress.step(`${HOSTS} hosts and ${REPLICAS} replicas`, () => Fleet.start(options));
    try {
      await checkHosts(fleet, journal);
      await checkReplicas(fleet, { minutes, seed, journal, databaseUrl: postgres.url });
    } finally {
      await fleet.close();
    }
  } finally {
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  }
  for (const difference of journal.differences) progress.say(`  ${difference}`);
  return journal.differences.length === 0 ? 0 : 1;
}

async function checkHosts(fleet: Fleet, journal: Journal): Promise<void> {
  const account = { email: 'cuts@fleet.test', tier: 'enterprise', billing_mode: 'unmetered' };
  const { api_key } = await fleet.operator('/admin/accounts', account);
  const call = callWith(fleet.url, String(api_key));
  const note = (differences: readonly string[]) => {
    for (const sentence of differences) journal.difference(sentence);
  };
  const { differences, machines } = await progress.step('machines are spread', () => checkSpread(fleet, call));
  note(differences);
  const [first = ''] = machines.get(1) ?? [];
  note(await progress.step('a host is cut off for a moment', () => checkShortCut(fleet, call, 1, first)));
  const lost = machines.get(2) ?? [];
  note(await progress.step('a host is cut off for long', () => checkLongCut(fleet, call, 2, lost)));
  const { body } = await call('GET', '/v1/machines');
  for (const { id } of body.machines as { id: string }[]) await call('DELETE', `/v1/machines/${id}`);
  note(await progress.step('a volume moves, and a host is drained', () => checkMoves(fleet, call)));
}

type Round = { minutes: number; seed: number; journal: Journal; databaseUrl: string };

async function checkReplicas(fleet: Fleet, { minutes, seed, journal, databaseUrl }: Round): Promise<void> {
  const account = { email: 'keeper@fleet.test', tier: 'enterprise', billing_mode: 'unmetered' };
  const { api_key } = await fleet.operator('/admin/accounts', account);
  const kills = await progress.step('replicas are killed under load', () =>
    runUnderKills({
      home: fleet.homes[0] ?? '',
      service: { baseUrl: fleet.url, apiKey: String(api_key) },
      seed,
      kills: 0,
      machinesOfClients: MACHINES_OF_CLIENTS,
      journal,
      signal: stop,
      harm: (killing) => harmReplicas(fleet, minutes, killing, progress.say),
      isFleet: true,
      databaseUrl,
    }),
  );
  for (const line of describeRun(kills, journal)) progress.say(line);
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  if (!stop.aborted) process.stderr.write(`${error instanceof Problem ? messageOf(error) : (error as Error).stack}\n`);
  return 1;
});
process.exit();
