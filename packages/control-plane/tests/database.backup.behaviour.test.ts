// The back-up of docs/database.md: pg_dump of a database in use, restored into an empty database of a server that has
// never seen Sandbar. Needs pg_dump, which the npm package of PostgreSQL does not have.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, it } from 'node:test';
import type { Audit } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { startControlPlane } from '../src/control-plane.ts';
import { callAdmin } from './support/admin.ts';
import { createDatabase, startPostgres, until } from './support/postgres.ts';
import { runSql } from './support/postgres-pair.ts';
import { postgresOf } from './support/postgres-versions.ts';
import { startTestBed } from './support/test-bed.ts';

const [pgDump] = globSync('/usr/lib/postgresql/*/bin/pg_dump');
const skip = pgDump === undefined && 'pg_dump is not installed (Debian: postgresql-client)';

it('a dump restores every account, machine and ledger entry, with the rights of the application', {
  skip,
}, async () => {
  const native = postgresOf(15);
  const old = await startPostgres({ native });
  const bed = await startTestBed({ databaseUrl: await createDatabase(old) });
  const { id } = (await bed.api('POST', '/v1/machines')).json;
  const credit = { eur: '25', as: 'top-up', reference: 'payment' };
  await callAdmin(bed.plane.app.config.adminSocket, `/admin/accounts/${bed.accountId}/credit`, credit);

  const folder = mkdtempSync(join(tmpdir(), 'sandbar-dump-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'sandbar.dump');
  const run = (program: string, ...args: string[]) =>
    execFileSync(join(pgDump ?? '', '..', program), args, { stdio: 'pipe' });
  run('pg_dump', '--format=custom', `--file=${file}`, bed.databaseUrl);
  await bed.plane.close();
  const restored = await createDatabase(await startPostgres({ native }));
  run('pg_restore', '--exit-on-error', '--no-owner', '--no-privileges', `--dbname=${restored}`, file);

  const { config, log } = bed.plane.app;
  const { adminSocket } = homePaths(folder);
  const plane = await startControlPlane({ ...config, home: folder, adminSocket, databaseUrl: restored }, log);
  after(() => plane.close());
  await until(() => plane.app.hosts.reachableIds().length === 1, 'it has its host');
  assert.equal((await bed.api('GET', `/v1/machines/${id}`, { plane })).json.state, 'running');
  const { json } = await callAdmin<Audit>(adminSocket, '/admin/audit');
  assert.deepEqual(json.findings, []);
  const [row] = await runSql(restored, `select balance_micros from accounts where id = '${bed.accountId}'`);
  assert.equal(Number(row?.balance_micros), 25_000_000);
  await assert.rejects(runSql(restored, 'set role sandbar_app', 'delete from ledger'), /permission denied/);
});
