// Migrates the database to the schema of this version. There is no way back to an older schema, but an older version may
// work on this one (oldest-reader.ts). Runs with the role that owns the tables. Two replicas may start at the same time, so the migration holds an advisory lock. Kysely has a lock
// of its own, but creates its own tables before it takes that lock.
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
import * as room from './migrations/010-room.ts';
import * as terminalTickets from './migrations/011-terminal-tickets.ts';
import * as portAccess from './migrations/012-port-access.ts';
import * as billing from './migrations/013-billing.ts';
import * as operators from './migrations/014-operators.ts';
import * as deviceLogins from './migrations/015-device-logins.ts';
import * as idempotency from './migrations/016-idempotency.ts';
import * as fleet from './migrations/017-fleet.ts';
import * as replicas from './migrations/018-replicas.ts';
import * as templates from './migrations/019-templates.ts';
import * as poolDepth from './migrations/021-pool-depth.ts';
import * as moves from './migrations/022-moves.ts';
import * as blobs from './migrations/023-blobs.ts';
import * as publicationErrors from './migrations/024-publication-errors.ts';
import { newerMigrations, noteOldestReader } from './oldest-reader.ts';
import { grantToApp, schemaIsClosed } from './roles.ts';

/** All migrations. Kysely applies them in alphabetical order. */
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
  '010-room': room,
  '011-terminal-tickets': terminalTickets,
  '012-port-access': portAccess,
  '013-billing': billing,
  '014-operators': operators,
  '015-device-logins': deviceLogins,
  '016-idempotency': idempotency,
  '017-fleet': fleet,
  '018-replicas': replicas,
  '019-templates': templates,
  '021-pool-depth': poolDepth,
  '022-moves': moves,
  '023-blobs': blobs,
  '024-publication-errors': publicationErrors,
};

/** The key of the advisory lock: an arbitrary number, the same in every replica. */
const LOCK_KEY = 7_311_842_005;

/**
 * Applies all missing migrations and returns their names. Changes nothing when a newer version has migrated the database.
 * Throws the first error; the failed migration is rolled back. Throws `ConfigError` if this version does not work on the
 * schema of the newer one, or if the role may not create tables or the application's role.
 */
export async function migrate(db: Db): Promise<string[]> {
  return db.connection().execute(async (lock) => {
    await acquireLock(lock);
    try {
      if ((await newerMigrations(db, Object.keys(MIGRATIONS))).length > 0) return [];
      await noteOldestReader(db).catch(async (error: unknown) => {
        throw (await schemaIsClosed(db, error)) ?? error;
      });
      const migrator = new Migrator({ db, provider: { getMigrations: async () => MIGRATIONS } });
      const { error, results } = await migrator.migrateToLatest();
      if (error) throw (await schemaIsClosed(db, error)) ?? error;
      await grantToApp(db);
      return (results ?? []).filter((result) => result.status === 'Success').map((result) => result.migrationName);
    } finally {
      await sql`select pg_advisory_unlock(${LOCK_KEY}::bigint)`.execute(lock);
    }
  });
}

/**
 * Polls for the lock every 100 ms. If PostgreSQL did the waiting, a replica that is killed meanwhile would stay in the
 * queue and could get the lock.
 */
async function acquireLock(lock: Db): Promise<void> {
  for (;;) {
    const { rows } = await sql<{ ok: boolean }>`select pg_try_advisory_lock(${LOCK_KEY}::bigint) as ok`.execute(lock);
    if (rows[0]?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
