// Isolates failures within a pass of the reconciler: when the work on one host, machine, volume or snapshot fails, the
// others are still processed.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/failures.ts';

/** The object that a failure concerns, for the log. */
export type Subject = { host_id: string } | { machine_id: string } | { volume_id: string } | { snapshot_id: string };

/**
 * Runs `work` and logs its error; the next pass tries again. Throws only when the database does not answer, because
 * then the rest of the pass would fail too.
 */
export async function attempt(app: App, subject: Subject, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (err) {
    if (isDatabaseAway(err)) throw err;
    app.log.warn({ err, ...subject }, 'the reconciler could not compare this with its host yet');
  }
}
