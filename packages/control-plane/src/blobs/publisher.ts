// Publishes the snapshots of all hosts in the background, one at a time for each host. The replica that listens to a host
// does it. A row of `publications` says when the next attempt is due; while one runs, it is moved into the future again
// and again, so that no other replica begins one.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { createBackground } from '../reconcilers/background.ts';
import type { ObjectStore } from './object-store.ts';
import { type PublishedSnapshot, publishSnapshot } from './publish.ts';

/** How long a claim is valid after the last sign of progress. It covers the time in which a host reads large files. */
const CLAIMED_FOR = sql`interval '10 minutes'`;
/** How many snapshots one pass takes. */
const TAKEN_AT_ONCE = 20;

export type Publisher = { pass(): Promise<void>; settled(): Promise<void> };

export function createPublisher(app: App, objects: ObjectStore): Publisher {
  const background = createBackground(app, 'publications', 1);
  const { first, longest } = app.config.timing.retryMs;

  const publish = async (snapshot: PublishedSnapshot) => {
    try {
      await publishSnapshot(app, objects, snapshot, () => claimAgain(app, snapshot.id));
    } catch (err) {
      if (app.closing.aborted) return;
      const isFinal = err instanceof ServiceError && err.code === 'conflict' && /stays on its host/.test(err.message);
      app.log.warn({ err, snapshot_id: snapshot.id, isFinal }, 'a snapshot was not published');
      await postpone(app, snapshot.id, isFinal, { first, longest });
    }
  };
  return {
    pass: async () => {
      const hostIds = app.hosts.listenedIds();
      if (hostIds.length === 0) return;
      await insertPublications(app, hostIds);
      for (const snapshot of await claimDue(app, hostIds)) {
        background.start(snapshot.host_id, snapshot.id, () => publish(snapshot));
      }
    },
    settled: background.settled,
  };
}

async function insertPublications({ db }: App, hostIds: readonly string[]): Promise<void> {
  await sql`
    insert into publications (snapshot_id)
    select id from snapshots where state = 'ready' and host_id = any(${hostIds}::uuid[])
      and not exists (select from publications where snapshot_id = snapshots.id)
    limit ${TAKEN_AT_ONCE}
    on conflict do nothing`.execute(db);
}

async function claimDue({ db }: App, hostIds: readonly string[]): Promise<PublishedSnapshot[]> {
  const { rows } = await sql<PublishedSnapshot>`
    update publications set due_at = now() + ${CLAIMED_FOR} from snapshots
    where snapshots.id = publications.snapshot_id and publications.snapshot_id in (
      select p.snapshot_id from publications p join snapshots s on s.id = p.snapshot_id
      where p.published_at is null and p.due_at <= now() and s.state = 'ready' and s.host_id = any(${hostIds}::uuid[])
      order by p.due_at limit ${TAKEN_AT_ONCE} for update of p skip locked)
    returning snapshots.id, snapshots.host_id, snapshots.kind`.execute(db);
  return rows;
}

async function claimAgain({ db }: App, snapshotId: string): Promise<void> {
  await sql`
    update publications set due_at = now() + ${CLAIMED_FOR}
    where snapshot_id = ${snapshotId} and published_at is null`.execute(db);
}

async function postpone(
  { db }: App,
  snapshotId: string,
  isFinal: boolean,
  { first, longest }: { first: number; longest: number },
): Promise<void> {
  await sql`
    update publications set failures = failures + 1, due_at = case when ${isFinal} then null else
      now() + least(${first} * power(2, least(failures, 20)), ${longest}) * interval '1 millisecond' end
    where snapshot_id = ${snapshotId} and published_at is null`.execute(db);
}
