// Stops all running machines of all accounts, when the owner ends the service with Ctrl-C.
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { stopMachine } from '../machines/actions.ts';

const WIDTH = 8;

/** Tries to stop every machine, and logs and counts the failures. Returns after the last try. */
export async function stopAllMachines(app: App): Promise<{ stopped: number; failed: number }> {
  const machines = await app.db
    .selectFrom('machines')
    .select(['id', 'account_id'])
    .where('state', 'in', ['running', 'provisioning'])
    .execute();
  const counts = { stopped: 0, failed: 0 };
  await forEachBounded(machines, WIDTH, async (machine) => {
    try {
      await stopMachine(app, machine.account_id, machine.id, 'system:operator');
      counts.stopped++;
    } catch (error) {
      counts.failed++;
      app.log.error({ err: error, machine_id: machine.id }, 'a machine could not be stopped');
    }
  });
  return counts;
}
