// The database of a benchmark, on the server of SANDBAR_DATABASE_URL: a new one for each run.
import { asOwner } from '@sandbar/control-plane/db/database.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';

const serverUrl = process.env.SANDBAR_DATABASE_URL ?? '';
const log = createLog('silent');

export type BenchDatabase = {
  url: string;
  asOwner: <T>(work: Parameters<typeof asOwner<T>>[2]) => Promise<T>;
  drop(): Promise<void>;
};

/** Creates an empty database, in place of the one of an earlier run. */
export async function createDatabase(name: string): Promise<BenchDatabase> {
  if (serverUrl === '') throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to use.');
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const onServer = (statement: string) => asOwner(serverUrl, log, (db) => sql.raw(statement).execute(db));
  const drop = async () => void (await onServer(`drop database if exists ${name} with (force)`));
  await drop();
  await onServer(`create database ${name}`);
  return { url: url.href, asOwner: (work) => asOwner(url.href, log, work), drop };
}
