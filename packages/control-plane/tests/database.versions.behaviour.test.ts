// Starts the control plane on each supported major version of PostgreSQL, runs all migrations, and tests the features
// that depend most on the database. `npm run test:postgres` runs all tests of the control plane on each version.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { keepMonths } from '../src/activity/partitions.ts';
import { asOwner } from '../src/db/database.ts';
import { MIGRATIONS } from '../src/db/migrate.ts';
import { connectToPrimary } from '../src/db/single.ts';
import { callAdmin } from './support/admin.ts';
import { createDatabase, startPostgres } from './support/postgres.ts';
import { runSql } from './support/postgres-pair.ts';
import { POSTGRES_MAJORS, postgresOf } from './support/postgres-versions.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

describe('PostgreSQL', { concurrency: 2 }, () => {
  for (const major of POSTGRES_MAJORS) {
    it(`${major} runs the control plane, for a role that owns nothing but its database`, async () => {
      const server = await startPostgres({ native: postgresOf(major) });
      const url = new URL(await createDatabase(server));
      await runSql(
        server.url,
        'create role sandbar_owner login',
        'create role sandbar_app nologin',
        'grant sandbar_app to sandbar_owner',
        `alter database ${url.pathname.slice(1)} owner to sandbar_owner`,
      );
      url.username = 'sandbar_owner';
      const databaseUrl = url.href;
      const bed = await startTestBed({ databaseUrl });
      const { api, plane } = bed;
      const [version] = await runSql(databaseUrl, 'show server_version_num');
      assert.equal(Math.floor(Number(version?.server_version_num) / 10_000), major);
      const [migrations] = await runSql(databaseUrl, 'select count(*)::int as n from kysely_migration');
      assert.equal(migrations?.n, Object.keys(MIGRATIONS).length);

      const headers = { 'idempotency-key': 'once' };
      const first = await api('POST', '/v1/machines', { headers });
      const again = await api('POST', '/v1/machines', { headers });
      assert.deepEqual([first.status, again.status, again.json.id], [201, 200, first.json.id], again.text);
      const path = `/admin/accounts/${bed.accountId}/credit`;
      const credit = { eur: '25', as: 'top-up', reference: 'payment' };
      for (const isNew of [true, false]) {
        const { json } = await callAdmin(plane.app.config.adminSocket, path, credit);
        assert.deepEqual([json.is_new, json.balance], [isNew, '25.000000']);
      }
      assert.equal((await api('DELETE', `/v1/machines/${first.json.id}`)).status, 200);

      const [month] = await runSql(
        databaseUrl,
        `select max(inhrelid::regclass::text) as name from pg_inherits
        where inhparent = 'activity'::regclass`,
      );
      await runSql(databaseUrl, `drop table ${month?.name}`);
      const { made } = await asOwner(databaseUrl, plane.app.log, (owner) => keepMonths(owner, 31));
      assert.deepEqual(made, [month?.name], 'months of the activity feed are partitions');
      await assert.rejects(runSql(databaseUrl, 'set role sandbar_app', 'delete from ledger'), /permission denied/);
      const [told] = await runSql(databaseUrl, 'select count(*)::int as n from activity');
      assert(Number(told?.n) >= 2, 'the feed tells of the machine');

      const listener = await connectToPrimary(databaseUrl, {});
      const heard = new Promise((resolve) => listener.once('notification', ({ payload }) => resolve(payload)));
      await listener.query('listen fleet');
      await runSql(databaseUrl, `select pg_notify('fleet', 'a host')`);
      assert.equal(await heard, 'a host');
      await listener.end();
      await checkBooks(bed);
    });
  }
});
