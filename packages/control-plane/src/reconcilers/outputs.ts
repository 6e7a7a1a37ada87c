// Learns which jobs have lost their output. A host drops output by itself, to stay under the limits of a machine, and
// does not wait for anybody to be told. It changes the `output_revision` of the machine's report then.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { expireOutputs } from '../execs/settle.ts';

export type OutputWatch = {
  /** Records what was dropped on the machine since the last call. Throws what the host or the database throws. */
  check(hostId: string, report: MachineReport): Promise<void>;
};

/** How many machines are remembered. A machine that is forgotten costs one more call and one more query. */
const REMEMBERED = 10_000;

/** Creates a watch that asks about every machine that ever dropped output at its first call, and after each drop. */
export function createOutputWatch(app: App): OutputWatch {
  const recorded = new Map<string, string>();
  return {
    check: async (hostId, { machine_id: machineId, output_revision: revision }) => {
      if (revision === null || recorded.get(machineId) === revision) return;
      // These jobs had ended before the host is asked, so the host either keeps their output now or has dropped it.
      const ended = await endedJobs(app, machineId);
      const kept = await app.hosts.client(hostId).keptOutput(machineId);
      if (!kept) return;
      const keptIds = new Set(kept.job_ids);
      const dropped = ended.filter((id) => !keptIds.has(id));
      if (dropped.length > 0) await expireOutputs(app.db, machineId, dropped);
      const [oldest] = recorded.keys();
      if (recorded.size >= REMEMBERED && oldest !== undefined) recorded.delete(oldest);
      recorded.set(machineId, kept.output_revision ?? revision);
    },
  };
}

/**
 * The ended jobs that are not recorded as expired. A job that was lost before it wrote anything is left out: it has no
 * output to lose, and its host may never have known it.
 */
async function endedJobs(app: App, machineId: string): Promise<string[]> {
  const rows = await app.db
    .selectFrom('execs')
    .select('id')
    .where('machine_id', '=', machineId)
    .where('status', '<>', 'running')
    .where('output_expired', '=', false)
    .where((is) => is.not(is.and([is('status', '=', 'lost'), is('stdout_bytes', '=', 0), is('stderr_bytes', '=', 0)])))
    .execute();
  return rows.map(({ id }) => id);
}
