// Brings the database to this version's schema, forward only. Runs as the
// owner of the tables, not as the role of the application. Two replicas may start at once: a session lock of our own
// spans the whole run, since Kysely creates its bookkeeping tables before it takes its lock.
import { sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import type { Db } from './database.ts';
import * as machines from './migrations/001-machines.ts';
import * as sharing from './migrations/002-sharing.ts';
import * as sessions from './migrations/003-sessions.ts';
import * as draining from './migrations/004-draining.ts';
import * as volumes from './migrations/005-volumes.ts';
import * as volumeError from './migrations/006-volume-error.ts';
import * as volumeChanges from './migrations/007-volume-changes.ts';
import * as snapshots from './migrations/008-snapshots.ts';
import * as operations from './migrations/009-operations.ts';
import { grantToApp } from './roles.ts';

/** In the order of their names. */
export const MIGRATIONS = {
  '001-machines': machines,
  '002-sharing': sharing,
  '003-sessions': sessions,
  '004-draining': draining,
  '005-volumes': volumes,
  '006-volume-error': volumeError,
  '007-volume-changes': volumeChanges,
  '008-snapshots': snapshots,
  '009-operations': operations,
};

/** Any constant; it only has to be the same in every replica. */
const LOCK_KEY = 7_311_842_005;

/** Applies what is missing and returns the names applied. Throws the first error; what failed is rolled back. */
export async function migrate(db: Db): Promise<string[]> {
  return db.connection().execute(async (lock) => {
    await acquireLock(lock);
    try {
      const migrator = new Migrator({ db, provider: { getMigrations: async () => MIGRATIONS } });
      const { error, results } = await migrator.migrateToLatest();
      if (error) throw error;
      await grantToApp(db);
      return (results ?? []).filter((result) => result.status === 'Success').map((result) => result.migrationName);
    } finally {
      await sql`select pg_advisory_unlock(${LOCK_KEY}::bigint)`.execute(lock);
    }
  });
}

/** Tries every 100 ms instead of waiting in the database, where the wait of a replica that was killed would go on. */
async function acquireLock(lock: Db): Promise<void> {
  for (;;) {
    const { rows } = await sql<{ ok: boolean }>`select pg_try_advisory_lock(${LOCK_KEY}::bigint) as ok`.execute(lock);
    if (rows[0]?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
