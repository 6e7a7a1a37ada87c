// Finds the jobs whose output was dropped. A host drops output by itself, to stay under the limits of a machine,
// without telling the control plane. But each drop changes the `output_revision` in the machine's report.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { expireOutputs } from '../execs/settle.ts';

export type OutputWatch = {
  /** Records which output was dropped on the machine since the last call. Throws errors of the host or the database. */
  check(hostId: string, report: MachineReport): Promise<void>;
};

/** How many machines are remembered. A forgotten machine only costs one more host call and one more query. */
const REMEMBERED = 10_000;

/**
 * Creates a watch. It asks the host about a machine at the first report that shows a drop, and after each later drop.
 */
export function createOutputWatch(app: App): OutputWatch {
  const recorded = new Map<string, string>();
  return {
    check: async (hostId, { machine_id: machineId, output_revision: revision }) => {
      if (revision === null || recorded.get(machineId) === revision) return;
      // Read the ended jobs before asking the host, so that output missing on the host was certainly dropped.
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
 * Returns the ended jobs whose output is not recorded as expired. A job that was lost before it wrote anything is left
 * out: it has no output to drop, and the host may never have known the job.
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
