// Tests of statements that run as the owner of the tables (migrations, monthly partitions): they have no time-out, but
// a database that does not answer is still detected.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { sql } from 'kysely';
import { asOwner } from '../src/db/database.ts';
import { isDatabaseAway } from '../src/db/failures.ts';
import { createLog } from '../src/log.ts';
import { createDatabase, endSharedPostgres, startPostgres } from './support/postgres.ts';

const log = createLog('silent', { write: () => undefined });
after(endSharedPostgres);

describe('work as the owner of the tables', () => {
  it('may take longer than a request waits for an answer', async () => {
    const url = await createDatabase();
    // A statement of a request may take at most 4 s. This one takes 6 s.
    const { rows } = await asOwner(url, log, (owner) =>
      sql<{ done: boolean }>`
      select true as done from pg_sleep(6)`.execute(owner),
    );
    assert.deepEqual(rows, [{ done: true }]);
  });

  it('fails when the database does not answer a new connection', async () => {
    const postgres = await startPostgres();
    postgres.freeze(true);
    try {
      await assert.rejects(
        asOwner(postgres.url, log, (owner) => sql`select 1`.execute(owner)),
        isDatabaseAway,
      );
    } finally {
      postgres.freeze(false);
      await postgres.stop();
    }
  });

  it('fails when there is no database', async () => {
    const nowhere = 'postgres://postgres@127.0.0.1:1/postgres';
    await assert.rejects(
      asOwner(nowhere, log, (owner) => sql`select 1`.execute(owner)),
      isDatabaseAway,
    );
  });
});
