// Attacks a service from inside real machines, as root in them, and measures what another account notices meanwhile and
// how much memory the service takes. It starts a service of its own. README.md explains the table. The exit code is 1
// when a bound is missed.
//   node_modules/node/bin/node bench/guest-attacks.ts [--quick] [--only TEXT]
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Client } from '@sandbar/sdk/client.ts';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { requestUnix } from '@sandbar/service/unix-request.ts';
import { type AttackArguments, readAttackArguments } from './guest-attacks/arguments.ts';
import { Attacker } from './guest-attacks/attacker.ts';
import { ATTACKS, type Attack } from './guest-attacks/attacks.ts';
import { ProcessWatch } from './guest-attacks/processes.ts';
import { describeResult, HEAD, missedBounds, type Result } from './guest-attacks/table.ts';
import { median, Victim } from './guest-attacks/victim.ts';
import { BenchService, type ModeService } from './service/bench-service.ts';

/** A name server that never answers, so that no query of the benchmark leaves this computer. */
const SILENT_NAME_SERVER = '127.0.0.99';
const CONNECTIONS = '/proc/sys/net/netfilter/nf_conntrack_count';

const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main(args: readonly string[]): Promise<number> {
  const chosen = readAttackArguments(args);
  process.env.SANDBAR_ALLOW_EMULATED_TENANTS = '1';
  process.env.SANDBAR_NAME_SERVERS = SILENT_NAME_SERVER;
  const nameServer = createSocket('udp4').bind(53, SILENT_NAME_SERVER);
  await once(nameServer, 'listening');
  const bench = await BenchService.prepare(0, progress, stop);
  try {
    const results = await attackAll(await bench.in('template'), chosen);
    for (const line of HEAD) progress.say(line);
    for (const result of results) progress.say(describeResult(result, baselineOf(result, results)));
    const missed = results.flatMap((result) => missedBounds(result).map((what) => `${result.attack.name}: ${what}`));
    progress.say(missed.length === 0 ? 'All bounds are met.' : `Missed:\n  ${missed.join('\n  ')}`);
    return missed.length === 0 ? 0 : 1;
  } finally {
    await bench.stop(hurry);
    for (const leak of await bench.remove()) progress.say(`left behind: ${leak}`);
    nameServer.close();
  }
}

const countConnections = (): number => Number(readFileSync(CONNECTIONS, 'utf8'));

const baselineOf = ({ attack }: Result, results: readonly Result[]): Result | undefined =>
  results.find((other) => other.attack.name === attack.baseline);

function chooseAttacks({ only, isQuick }: AttackArguments): Attack[] {
  const named = ATTACKS.filter(({ name, ...attack }) => name.includes(only) && (!isQuick || attack.isQuick));
  return ATTACKS.filter((attack) => named.includes(attack) || named.some(({ baseline }) => baseline === attack.name));
}

/** Runs the attacks one after the other. When it returns or throws, the two accounts have no machines. */
async function attackAll(service: ModeService, chosen: AttackArguments): Promise<Result[]> {
  const [own, evil] = [await newAccount(service, 'victim'), await newAccount(service, 'attacker')];
  const results: Result[] = [];
  try {
    const victim = new Victim(own, (await own.machines.create()).id);
    await victim.measure(chosen.before);
    for (const attack of chooseAttacks(chosen)) {
      stop.throwIfAborted();
      const result = await runAttack(attack, victim, new Attacker(evil, service.paths.runMachines), service, chosen);
      results.push(result);
      progress.say(describeResult(result, baselineOf(result, results)));
    }
    return results;
  } finally {
    for (const sandbar of [own, evil]) {
      const machines = await sandbar.machines.list();
      await Promise.all(machines.map(({ id }) => sandbar.machines.destroy(id)));
    }
  }
}

async function runAttack(
  attack: Attack,
  victim: Victim,
  attacker: Attacker,
  { paths }: ModeService,
  chosen: AttackArguments,
): Promise<Result> {
  const before = await victim.measure(chosen.before);
  await attacker.prepare(attack);
  const watch = new ProcessWatch(paths);
  const [began, usedBefore] = [performance.now(), attacker.cpuSeconds()];
  const connectionsBefore = countConnections();
  let mostConnections = 0;
  const counter = setInterval(() => {
    mostConnections = Math.max(mostConnections, countConnections() - connectionsBefore);
  }, 200);
  await attacker.begin(attack);
  const during = await victim.measure(chosen.during);
  const attackerCores = (attacker.cpuSeconds() - usedBefore) / ((performance.now() - began) / 1000);
  const since = performance.now();
  const ending = attacker.end();
  // A failure is thrown below, after the wait.
  ending.catch(() => undefined);
  const recoveryMs = await victim.recovery(since, median(before.exec));
  await ending;
  clearInterval(counter);
  const after = await victim.measure(chosen.after);
  return { attack, before, during, after, recoveryMs, attackerCores, mostConnections, ...watch.end() };
}

async function newAccount({ paths, credentials }: ModeService, name: string): Promise<Client> {
  const body = { email: `${name}@example.test`, tier: 'enterprise' };
  const { status, text } = await requestUnix(paths.adminSocket, { method: 'POST', path: '/admin/accounts', body });
  if (status >= 300) throw new Error(`no account: ${status} ${text}`);
  const apiKey = String((JSON.parse(text) as { api_key: unknown }).api_key);
  return new Client({ baseUrl: credentials.base_url, apiKey, retryForSec: 0 });
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  if (!stop.aborted) process.stderr.write(`${error instanceof Problem ? messageOf(error) : (error as Error).stack}\n`);
  return 1;
});
