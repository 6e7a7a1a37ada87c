// Removes blobs that no snapshot and no image needs, and objects that no row knows. A crash at any line leaves at most
// garbage that the next round finds: first the row says `removing`, which refuses new references, then the objects are
// deleted, then the row. store.ts says why this never meets a blob that is in use.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import type { ObjectStore } from './object-store.ts';
import { blobPrefix, readKeyPrefix } from './store.ts';

/** How many blobs one round removes. */
const BATCH = 100;
/**
 * Objects without a row are removed when they are this old, in milliseconds. A part is recorded within an hour after
 * its upload began, so nobody will record an object of this age.
 */
const STRAY_MS = 24 * 3_600_000;

export type Collector = { pass(): Promise<void> };

/** `now`: the time in milliseconds, for the age of objects. */
export function createCollector(app: App, objects: ObjectStore, now: () => number = Date.now): Collector {
  let nextStrays = 0;
  return {
    pass: async () => {
      await removeUnusedBlobs(app, objects);
      if (performance.now() < nextStrays) return;
      await removeStrays(app, objects, now());
      nextStrays = performance.now() + app.config.timing.blobsMs.strays;
    },
  };
}

/** Removes blobs that nothing refers to, and goes on with removals that were interrupted. */
export async function removeUnusedBlobs(app: App, objects: ObjectStore): Promise<void> {
  await removeOldImages(app);
  for (const id of await listUnused(app)) await beginRemoval(app, id);
  const removing = await app.db.selectFrom('blobs').select('id').where('state', '=', 'removing').limit(BATCH).execute();
  const keyPrefix = await readKeyPrefix(app.db);
  for (const { id } of removing) {
    if (app.closing.aborted) return;
    for await (const page of objects.list(blobPrefix(keyPrefix, id))) await objects.remove(page.map(({ key }) => key));
    await app.db.deleteFrom('blobs').where('id', '=', id).where('state', '=', 'removing').execute();
  }
  if (removing.length > 0) app.log.info({ blobs: removing.length }, 'blobs that nothing needs were removed');
}

/**
 * Removes images that a newer one of the same stack has replaced. The newer one must have been there for a while, so
 * that creates that have begun with the older one are done.
 */
async function removeOldImages({ db, config }: App): Promise<void> {
  await sql`
    delete from publications where stack is not null and exists (
      select from publications newer where newer.stack = publications.stack
        and newer.image_created_at > publications.image_created_at
        and newer.published_at < now() - ${config.timing.blobsMs.kept}::int * interval '1 millisecond')`.execute(db);
}

async function listUnused({ db, config }: App): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select id from blobs where state <> 'removing'
      and used_at < now() - ${config.timing.blobsMs.kept}::int * interval '1 millisecond'
      and not exists (select from publication_blobs where blob_id = blobs.id)
    limit ${BATCH}`.execute(db);
  return rows.map(({ id }) => id);
}

/** Marks a blob as being removed unless something refers to it by now. */
function beginRemoval({ db }: App, id: string): Promise<void> {
  return inTransaction(db, async (tx) => {
    const blob = await tx.selectFrom('blobs').select('id').where('id', '=', id).forUpdate().executeTakeFirst();
    if (!blob) return;
    // A statement of its own, which sees all references that were committed before the lock was taken.
    await sql`
      update blobs set state = 'removing'
      where id = ${id} and not exists (select from publication_blobs where blob_id = ${id})`.execute(tx);
  });
}

/** Removes old objects of this database that no row of a part knows, such as those of uploads that were cut off. */
export async function removeStrays(app: App, objects: ObjectStore, nowMs: number): Promise<void> {
  let count = 0;
  for await (const page of objects.list(await readKeyPrefix(app.db))) {
    if (app.closing.aborted) return;
    const old = page.filter(({ changedAt }) => changedAt.getTime() < nowMs - STRAY_MS).map(({ key }) => key);
    if (old.length === 0) continue;
    const known = await app.db.selectFrom('blob_parts').select('key').where('key', 'in', old).execute();
    const live = new Set(known.map(({ key }) => key));
    const strays = old.filter((key) => !live.has(key));
    await objects.remove(strays);
    count += strays.length;
  }
  if (count > 0) app.log.info({ objects: count }, 'objects that no row knows were removed');
}
