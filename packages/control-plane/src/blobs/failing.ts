// Finds publications that fail again and again, for the audit and the metrics. Creates on other hosts are refused until
// they succeed, and nothing else tells the operator that the object store does not take what it should.
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';

/**
 * A publication with more failed attempts than this fails again and again. With the pauses between attempts, that is
 * after about six minutes.
 */
const MANY_FAILURES = 5;
const IS_FAILING = sql<boolean>`failures > ${MANY_FAILURES}::int`;

/**
 * SQL: the publications that publisher.ts attempts. A publication that is not possible has no `due_at`, and one whose host
 * was removed is never attempted again.
 */
const WAITING = sql`
  publications left join snapshots on snapshots.id = publications.snapshot_id
    join hosts on hosts.id = coalesce(snapshots.host_id, publications.host_id)
  where published_at is null and due_at is not null and coalesce(snapshots.state, 'ready') = 'ready'
    and hosts.removed_at is null`;

export type FailingPublication = {
  id: string;
  host_id: string;
  /** The image; null for a snapshot, whose id is that of the publication. */
  stack: string | null;
  failures: number;
  last_error: string | null;
};

/** Lists the publications that fail again and again. */
export async function listFailing(db: Db): Promise<FailingPublication[]> {
  const { rows } = await sql<FailingPublication>`
    select publications.id, hosts.id as host_id, publications.stack, failures, last_error
    from ${WAITING} and ${IS_FAILING} order by publications.id`.execute(db);
  return rows;
}

export const PUBLICATION_KINDS = ['snapshot', 'image'] as const;
export type PublicationFacts = { kind: (typeof PUBLICATION_KINDS)[number]; waiting: number; failing: number };

/** Counts the publications that are not in the object store yet, and those of them that fail again and again. */
export async function countWaiting(db: Db): Promise<PublicationFacts[]> {
  const { rows } = await sql<PublicationFacts>`
    select case when publications.stack is null then 'snapshot' else 'image' end as kind,
      count(*) as waiting, count(*) filter (where ${IS_FAILING}) as failing
    from ${WAITING} group by 1`.execute(db);
  return rows;
}

/** Makes the next attempt at a publication due now. */
export async function publishSoon(db: Db, id: string): Promise<void> {
  await sql`
    update publications set due_at = now() where id = ${id} and published_at is null and due_at is not null`.execute(
    db,
  );
}
