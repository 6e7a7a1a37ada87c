// Asks the hosts that the replica which listens to them does not reach. If this replica reaches such a host, the fault
// lies between that replica and the host: its machines are not given up, and another replica takes the host over.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';

const WIDTH = 16;

/** Asks each host once, and records which of them answered. Throws when the database does not answer. */
export async function askAwayHosts(app: App): Promise<void> {
  const failing = app.presence.failing();
  const hostIds = app.hosts.awayIds().filter((id) => !failing.has(id));
  const answered: string[] = [];
  await forEachBounded(hostIds, WIDTH, async (hostId) => {
    try {
      const info = await app.hosts.client(hostId).info();
      if (info.host_id === hostId) answered.push(hostId);
    } catch (err) {
      app.log.debug({ err, host_id: hostId }, 'a host that is away does not answer this replica either');
    }
  });
  if (answered.length === 0) return;
  await sql`
    update hosts set seen_at = now()
    where id in (select id from hosts where id = any(${answered}::uuid[]) order by id for no key update)`.execute(
    app.db,
  );
}
