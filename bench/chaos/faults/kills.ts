// Kills of processes with SIGKILL. The load may see refused and broken connections and 503. Only the kill of a VM ends
// something that a client has: the load learns from `casualties` which machine it was.
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Restartable } from '../../../tests/fleet/bed/processes.ts';
import { qemuPids, readPid } from '../../service/processes.ts';
import type { BegunFault, Fault } from '../fault.ts';

const POLL_MS = 20;
/** How long to wait for a machine that may lose its VM. */
const PATIENCE_MS = 60_000;
const NOTHING_TO_END = async () => {};

export const killAgent: Fault = async ({ bed }) => killUntilEnd([bed.agent]);

/** Kills one replica of the control plane, or all replicas at once. The seed decides which. */
export const killControlPlane: Fault = async ({ bed, random }) => {
  const { replicas } = bed.fleet;
  const one = random.pick(replicas);
  return killUntilEnd(random.chance(0.5) || one === undefined ? replicas : [one]);
};

/** Kills PostgreSQL's first process. Its supervisor starts it again. */
export const killPostgres: Fault = async ({ bed, signal }) => {
  for (;;) {
    const pid = readPid(bed.postgres.pidFile);
    if (pid !== undefined) {
      process.kill(pid, 'SIGKILL');
      return { about: `pid ${pid}`, end: NOTHING_TO_END };
    }
    await delay(POLL_MS, undefined, { signal });
  }
};

/** Kills the QEMU of a machine whose client expects that. */
export const killVm: Fault = async ({ bed, random, casualties, signal }) => {
  const folder = homePaths(bed.hostHome).runMachines;
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until; ) {
    const vm = random.pick([...qemuPids(folder)].filter(([id]) => casualties.expendable.has(id)));
    if (vm !== undefined) {
      const [id, pid] = vm;
      casualties.kill(id);
      process.kill(pid, 'SIGKILL');
      return { about: `${id}, pid ${pid}`, end: NOTHING_TO_END };
    }
    await delay(POLL_MS, undefined, { signal });
  }
  return { about: 'no machine was there whose VM may be killed', end: NOTHING_TO_END };
};

async function killUntilEnd(victims: readonly Restartable[]): Promise<BegunFault> {
  await Promise.all(victims.map((victim) => victim.end('SIGKILL')));
  return {
    about: victims.map(({ name }) => name).join(' and '),
    end: async () => {
      await Promise.all(victims.map((victim) => victim.start()));
    },
  };
}
