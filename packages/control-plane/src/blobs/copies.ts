// Removes copies of snapshots from hosts when the snapshot was deleted. A host removes copies by itself that nobody
// uses, but it does not know which snapshots exist.
import type { App } from '../app.ts';

/** Compares the copies on a host with the snapshots. Throws the errors of the host. */
export async function removeOldCopies(app: App, hostId: string): Promise<void> {
  const client = app.hosts.client(hostId);
  const ids = await client.listCopies();
  if (ids.length === 0) return;
  const rows = await app.db
    .selectFrom('snapshots')
    .select('id')
    .where('id', 'in', ids)
    .where('state', '<>', 'deleting')
    .execute();
  const known = new Set(rows.map(({ id }) => id));
  for (const id of ids.filter((one) => !known.has(one))) await client.removeCopy(id);
}
