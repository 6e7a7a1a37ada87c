// One subject of a pass that fails keeps no other from its turn: the failure is logged, and the next pass tries again.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/database.ts';

/** What a failure is about, for the log. */
export type Subject = { host_id: string } | { machine_id: string } | { volume_id: string } | { snapshot_id: string };

/** Runs `work` and logs its failure. Throws only when the database is away, since then nothing else of the pass can work. */
export async function attempt(app: App, subject: Subject, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (err) {
    if (isDatabaseAway(err)) throw err;
    app.log.warn({ err, ...subject }, 'the reconciler could not compare this with its host yet');
  }
}
