// Copies the files of the embedded PostgreSQL while it runs, by its own procedure for that ("Making a Base Backup Using
// the Low Level API" in its manual). The copied files are of different moments. So the copy also has the write-ahead log
// from the begin to the end of the copying, and a PostgreSQL that starts on it replays that. The result is the database
// as it was at the end. pg_basebackup does the same, but the npm package of PostgreSQL does not have it.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import pg from 'pg';
import { messageOf, Problem } from '../problem.ts';
import { databaseUrlOf } from '../supervise/definitions.ts';
import { type Pack, pack } from './archive.ts';
import type { Archive } from './manifest.ts';

/** What the manual says to leave out, below the folder of the database: what belongs to the running server. */
const OF_THE_SERVER = ['postmaster.pid', 'postmaster.opts', '*pgsql_tmp*', '*pg_internal.init'];
/** Folders whose content is left out. The log is packed at the end. */
const EMPTY_FOLDERS = [
  ...['pg_wal', 'pg_replslot', 'pg_dynshmem', 'pg_notify', 'pg_serial', 'pg_snapshots', 'pg_stat_tmp', 'pg_subtrans'],
];

/** Packs the database into archives in `folder`. Returns them in the order of their extraction. Throws Problem. */
export async function packRunningDatabase(home: string, folder: string): Promise<Archive[]> {
  const { postgresData, postgresSocketDir } = homePaths(home);
  const data = path.basename(postgresData);
  const excluded = [...OF_THE_SERVER, ...EMPTY_FOLDERS.map((name) => `${name}/*`)].map((name) => `${data}/${name}`);
  const packInto = async (file: string, what: Pack): Promise<Archive> => {
    return { part: 'database', file, ...(await pack(path.join(folder, file), what)) };
  };
  const client = new pg.Client({ connectionString: databaseUrlOf(postgresSocketDir) });
  client.on('error', () => {});
  try {
    await client.connect();
    // Keeps the log of the time from now on. PostgreSQL removes it at the end of this connection.
    await client.query(`select pg_create_physical_replication_slot('sandbar_backup', true, true)`);
    await client.query(`select pg_backup_start('sandbar', fast => true)`);
    const files = await packInto('database.tar', { root: home, entries: [data], excluded, mayChange: true });
    const { rows } = await client.query<{ labelfile: string }>(
      'select labelfile from pg_backup_stop(wait_for_archive => false)',
    );
    const log = await packInto('database-log.tar', { root: home, entries: [`${data}/pg_wal`], mayChange: true });
    return [files, log, await packLabel(rows[0]?.labelfile ?? '', data, folder, packInto)];
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(`The running database cannot be backed up: ${messageOf(error)}`);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Packs the file that makes PostgreSQL replay the log from the begin of the copying. A running server must not have it. */
async function packLabel(
  label: string,
  data: string,
  folder: string,
  packInto: (file: string, what: Pack) => Promise<Archive>,
): Promise<Archive> {
  const root = await mkdtemp(path.join(folder, 'label-'));
  try {
    await mkdir(path.join(root, data), { mode: 0o700 });
    await writeFile(path.join(root, data, 'backup_label'), label, { mode: 0o600 });
    return await packInto('database-label.tar', { root, entries: [`${data}/backup_label`] });
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}
