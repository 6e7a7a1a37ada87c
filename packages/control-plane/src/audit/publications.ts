// Finds snapshots and images that cannot be put into the object store.
import type { App } from '../app.ts';
import { listFailing, publishSoon } from '../blobs/failing.ts';
import type { Finding } from './finding.ts';

/** Returns the findings about publications that fail again and again. Without an object store there are none. */
export async function findInPublications({ db, objects }: App): Promise<Finding[]> {
  if (!objects) return [];
  const failing = await listFailing(db);
  return failing.map(({ id, host_id, stack, failures, last_error }) => ({
    area: 'publication',
    hostId: host_id,
    subject: stack ?? id,
    key: `publication/${id}`,
    detail:
      `The ${stack === null ? 'snapshot' : 'image'} is not in the object store after ${failures} failed attempts. ` +
      `The last error: ${last_error ?? 'none was recorded'}`,
    mend: { fix: 'try it now', did: 'did it', run: (app: App) => publishSoon(app.db, id) },
  }));
}
