// An upgrade that is taken back: what an older version does on the database of a newer one, and whether the version
// before this one can really work on the tables of this one.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Migrator } from 'kysely/migration';
import { asOwner } from '../src/db/database.ts';
import { MIGRATIONS, migrate } from '../src/db/migrate.ts';
import { OLDEST_READER } from '../src/db/oldest-reader.ts';
import { createLog } from '../src/log.ts';
import { createDatabase } from './support/postgres.ts';
import { runSql } from './support/postgres-pair.ts';
import { startTestBed } from './support/test-bed.ts';

const log = createLog('silent');
/** A migration that only a newer version has. */
const NEWER = '998-newer';

/** What a newer version leaves: a migration that this version does not know, and the oldest version that it allows. */
async function upgrade(databaseUrl: string, oldestReader: string): Promise<void> {
  await runSql(
    databaseUrl,
    'alter table hosts add column height_units integer not null default 1',
    'create table racks (id uuid primary key)',
    `insert into kysely_migration values ('${NEWER}', '2030-01-01T00:00:00.000Z')`,
    `update schema_oldest_reader set migration = '${oldestReader}'`,
  );
}

describe('a version older than its database', () => {
  it('works when the newer version allows it, and changes nothing of the tables', async () => {
    const bed = await startTestBed();
    const { id } = (await bed.api('POST', '/v1/machines')).json;
    await upgrade(bed.databaseUrl, Object.keys(MIGRATIONS).at(-1) ?? '');
    const restarted = await bed.addReplica();
    const { status, json } = await bed.api('GET', `/v1/machines/${id}`, { plane: restarted });
    assert.deepEqual([status, json.state], [200, 'running']);
    assert.equal((await bed.api('POST', '/v1/machines', { plane: restarted })).status, 201);
    const noted = await runSql(bed.databaseUrl, 'select migration from schema_oldest_reader');
    assert.deepEqual(noted, [{ migration: Object.keys(MIGRATIONS).at(-1) }]);
    const rights = await runSql(bed.databaseUrl, `select has_table_privilege('sandbar_app', 'racks', 'insert') as may`);
    assert.deepEqual(rights, [{ may: false }]);
  });

  it('refuses to start when the newer version does not allow it, and says what to do', async () => {
    const databaseUrl = await createDatabase();
    await asOwner(databaseUrl, log, migrate);
    await upgrade(databaseUrl, NEWER);
    await assert.rejects(asOwner(databaseUrl, log, migrate), (error: Error) => {
      assert.equal(error.constructor.name, 'ConfigError');
      assert.match(error.message, /newer version of Sandbar \(998-newer\).*restore a back-up/);
      return true;
    });
  });
});

type Column = { place: string; type: string; required: boolean; has_default: boolean };
type Rule = { place: string; columns: string[]; rule: string };

async function readSchema(databaseUrl: string): Promise<{ columns: Column[]; rules: Rule[] }> {
  const tables = `c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and c.relname not like 'kysely%' and c.relname <> 'schema_oldest_reader'`;
  const columns = await runSql(
    databaseUrl,
    `select c.relname || '.' || a.attname as place, format_type(a.atttypid, a.atttypmod) as type,
       a.attnotnull as required, a.atthasdef or a.attidentity <> '' as has_default
     from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where ${tables}`,
  );
  // Constraints, unique indexes and triggers: they may refuse or change a row that a statement of the older version
  // writes. `columns` already tells which columns must not be null.
  const rules = await runSql(
    databaseUrl,
    `select c.relname as place, pg_get_constraintdef(r.oid) as rule, array(select c.relname || '.' || attname
         from pg_attribute where attrelid = c.oid and attnum = any(r.conkey))::text[] as columns
       from pg_class c join pg_constraint r on r.conrelid = c.oid where ${tables} and r.contype <> 'n'
     union all select c.relname, pg_get_indexdef(i.indexrelid), array(select c.relname || '.' || attname
         from pg_attribute where attrelid = c.oid and attnum = any(i.indkey::int2[]))::text[]
       from pg_class c join pg_index i on i.indrelid = c.oid where ${tables} and i.indisunique
     union all select c.relname, pg_get_triggerdef(t.oid), array[]::text[]
       from pg_class c join pg_trigger t on t.tgrelid = c.oid where ${tables} and not t.tgisinternal`,
  );
  return { columns: columns as Column[], rules: rules as Rule[] };
}

async function schemaAt(migration: string) {
  const databaseUrl = await createDatabase();
  await asOwner(databaseUrl, log, async (owner) => {
    const migrator = new Migrator({ db: owner, provider: { getMigrations: async () => MIGRATIONS } });
    assert.equal((await migrator.migrateTo(migration)).error, undefined);
  });
  return readSchema(databaseUrl);
}

/** Says why statements of the version with the schema `old` may fail on the schema `now`. */
function breaks(old: Awaited<ReturnType<typeof readSchema>>, now: typeof old): string[] {
  const problems: string[] = [];
  const tableOf = (place: string) => place.split('.')[0] ?? '';
  const oldTables = new Set(old.columns.map(({ place }) => tableOf(place)));
  const oldColumns = new Map(old.columns.map((column) => [column.place, column]));
  const isThere = new Set(now.columns.map(({ place }) => place));
  for (const { place } of old.columns) if (!isThere.has(place)) problems.push(`${place} is gone`);
  for (const { place, type, required, has_default } of now.columns) {
    const before = oldColumns.get(place);
    if (before === undefined) {
      if (oldTables.has(tableOf(place)) && required && !has_default) problems.push(`${place} needs a value`);
      continue;
    }
    if (before.type !== type) problems.push(`${place} was ${before.type} and is ${type}`);
    if (required && !before.required) problems.push(`${place} may not be null any more`);
    if (before.has_default && !has_default) problems.push(`${place} has no default any more`);
  }
  const oldRules = new Set(old.rules.map(({ place, rule }) => `${place}: ${rule}`));
  for (const { place, rule, columns } of now.rules) {
    const isOfOld = columns.length === 0 ? oldTables.has(place) : columns.every((column) => oldColumns.has(column));
    if (isOfOld && !oldRules.has(`${place}: ${rule}`)) problems.push(`${place} has a new rule: ${rule}`);
  }
  return problems;
}

describe('the tables of this version', () => {
  it('have all that the oldest version that may use them needs, and no new rule for its rows', async () => {
    assert.ok(OLDEST_READER in MIGRATIONS);
    const old = await schemaAt(OLDEST_READER);
    const now = await schemaAt(Object.keys(MIGRATIONS).at(-1) ?? '');
    assert.deepEqual(breaks(old, now), []);
    // The comparison does find changes that are no additions: there were some after this migration.
    assert.notDeepEqual(breaks(await schemaAt('008-snapshots'), now), []);
  });
});
