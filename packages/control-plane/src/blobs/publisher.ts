// Publishes the snapshots and images of all hosts in the background, one at a time for each host. The replica that listens
// to a host does it. A row of `publications` says when the next attempt is due; while one runs, it is moved into the
// future again and again, so that no other replica begins one.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { createBackground } from '../reconcilers/background.ts';
import type { ObjectStore } from './object-store.ts';
import { type DuePublication, NotPublishable, publish } from './publish.ts';

/** How long a claim is valid after the last sign of progress. It covers the time in which a host reads large files. */
const CLAIMED_FOR = sql`interval '10 minutes'`;
/** How many characters of an error are kept. */
const MAX_ERROR_CHARACTERS = 1_000;
/** How many snapshots one pass takes. */
const TAKEN_AT_ONCE = 20;

export type Publisher = { pass(): Promise<void>; settled(): Promise<void> };

export function createPublisher(app: App, objects: ObjectStore): Publisher {
  const background = createBackground(app, 'publications', 1);
  let nextImages = 0;

  const attempt = async (due: DuePublication) => {
    try {
      await publish(app, objects, due, () => claimAgain(app, due.id));
    } catch (err) {
      if (app.closing.aborted) return;
      const isFinal = err instanceof NotPublishable;
      app.log.warn({ err, publication_id: due.id, stack: due.stack, isFinal }, 'not published to the object store');
      await postpone(app, due.id, err, isFinal);
    }
  };
  return {
    pass: async () => {
      const hostIds = app.hosts.listenedIds();
      if (hostIds.length === 0) return;
      await insertSnapshots(app, hostIds);
      if (performance.now() >= nextImages) {
        await insertImages(app);
        nextImages = performance.now() + app.config.timing.blobsMs.images;
      }
      for (const due of await claimDue(app, hostIds)) {
        background.start(due.host_id, due.id, () => attempt(due));
      }
    },
    settled: background.settled,
  };
}

async function insertSnapshots({ db }: App, hostIds: readonly string[]): Promise<void> {
  await sql`
    insert into publications (id, snapshot_id)
    select id, id from snapshots where state = 'ready' and host_id = any(${hostIds}::uuid[])
      and not exists (select from publications where snapshot_id = snapshots.id)
    limit ${TAKEN_AT_ONCE}
    on conflict do nothing`.execute(db);
}

/** Inserts the newest image of each stack that a host of the fleet has. */
async function insertImages({ db }: App): Promise<void> {
  await sql`
    insert into publications (id, stack, digest, image_created_at, host_id)
    select distinct on (image ->> 'stack') gen_random_uuid(), image ->> 'stack', image ->> 'digest',
      (image ->> 'created_at')::timestamptz, hosts.id
    from hosts, jsonb_array_elements(hosts.images) image
    where removed_at is null and away_since is null
    order by image ->> 'stack', (image ->> 'created_at')::timestamptz desc, hosts.id
    on conflict (stack, digest, image_created_at) do update set host_id = excluded.host_id
      where publications.published_at is null and publications.host_id <> excluded.host_id`.execute(db);
}

async function claimDue({ db }: App, hostIds: readonly string[]): Promise<DuePublication[]> {
  const { rows } = await sql<DuePublication>`
    with due as (
      select p.id, coalesce(s.host_id, p.host_id) as host_id
      from publications p left join snapshots s on s.id = p.snapshot_id
      where p.published_at is null and p.due_at <= now() and coalesce(s.state, 'ready') = 'ready'
        and coalesce(s.host_id, p.host_id) = any(${hostIds}::uuid[])
      order by p.due_at limit ${TAKEN_AT_ONCE} for update of p skip locked)
    update publications set due_at = now() + ${CLAIMED_FOR} from due where due.id = publications.id
    returning publications.id, due.host_id, stack, digest`.execute(db);
  return rows;
}

async function claimAgain({ db }: App, id: string): Promise<void> {
  await sql`
    update publications set due_at = now() + ${CLAIMED_FOR} where id = ${id} and published_at is null`.execute(db);
}

async function postpone({ db, config }: App, id: string, error: unknown, isFinal: boolean): Promise<void> {
  const { first, longest } = config.timing.retryMs;
  const lastError = (error instanceof Error ? error.message : String(error)).slice(0, MAX_ERROR_CHARACTERS);
  await sql`
    update publications set failures = failures + 1, last_error = ${lastError}, due_at = case when ${isFinal} then null else
      now() + least(${first}::int * power(2, least(failures, 20)), ${longest}::int) * interval '1 millisecond' end
    where id = ${id} and published_at is null`.execute(db);
}
