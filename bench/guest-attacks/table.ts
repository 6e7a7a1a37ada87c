// Compares what was measured with the bounds, and prints it.
import type { Attack } from './attacks.ts';
import { PROCESSES, type ProcessName, type Usages } from './processes.ts';
import { EXEC_FACTOR, GET_BOUND_MS, median, p99, type Times } from './victim.ts';

export type Result = {
  attack: Attack;
  before: Times;
  during: Times;
  after: Times;
  /** The time in ms from the end of the attack until requests took their usual time again. */
  recoveryMs: number;
  usages: Usages;
  /** The processes of the service that ended during the attack or the recovery. */
  ended: readonly ProcessName[];
  /** Processor time of all QEMUs of the attacker, in cores. NaN when one of them ended. */
  attackerCores: number;
  /** The largest number of connections that the host tracked at once during the attack, minus those before it. */
  mostConnections: number;
};

const CONTROL_PLANE_MB = 300;
const HOST_AGENT_MB = 250;
const RECOVERY_MS = 5000;

/** The bounds that the result misses, each as a short sentence. */
export function missedBounds({ during, before, usages, recoveryMs, ended, attackerCores }: Result): string[] {
  const factor = median(during.exec) / median(before.exec);
  return [
    p99(during.get) < GET_BOUND_MS ? '' : `GET p99 ${p99(during.get).toFixed(0)} ms`,
    factor < EXEC_FACTOR ? '' : `exec ${factor.toFixed(1)} times its usual time`,
    usages['control plane'].mostMb < CONTROL_PLANE_MB ? '' : 'memory of the control plane',
    usages['host agent'].mostMb < HOST_AGENT_MB ? '' : 'memory of the host agent',
    recoveryMs < RECOVERY_MS ? '' : `recovery after ${(recoveryMs / 1000).toFixed(1)} s`,
    during.errors.length === 0 ? '' : `${during.errors.length} requests failed: ${during.errors[0]}`,
    Number.isNaN(attackerCores) ? 'a machine of the attacker was ended' : '',
    ended.length === 0 ? '' : `ended: ${ended.join(', ')}`,
  ].filter(Boolean);
}

/** The head of the table, in Markdown. */
export const HEAD = [
  '| attack | GET p99, ms | exec median, ms | exec to usual | to busy | recovery, s | MB: control plane, agent, gateway, relay | % of a core: the same, attacker | connections |',
  '|---|---|---|---|---|---|---|---|---|',
];

/** One row. Three times are those before, during and after the attack. */
export function describeResult(result: Result, baseline: Result | undefined): string {
  const { attack, before, during, after, usages, attackerCores, recoveryMs, mostConnections } = result;
  const three = (of: (times: Times) => number) =>
    [before, during, after].map((times) => of(times).toFixed(1)).join(', ');
  const factorTo = (times: Times) => (median(during.exec) / median(times.exec)).toFixed(2);
  const memory = PROCESSES.map((name) => usages[name].mostMb.toFixed(0)).join(', ');
  const percent = [...PROCESSES.map((name) => usages[name].cores), attackerCores].map((cores) =>
    (cores * 100).toFixed(0),
  );
  const cells = [
    attack.name,
    three(({ get }) => p99(get)),
    three(({ exec }) => median(exec)),
    factorTo(before),
    baseline ? factorTo(baseline.during) : '',
    (recoveryMs / 1000).toFixed(1),
    memory,
    percent.join(', '),
    String(mostConnections),
  ];
  return `| ${cells.join(' | ')} |`;
}
