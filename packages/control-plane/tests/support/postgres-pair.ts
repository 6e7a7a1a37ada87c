import { chownSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { freePorts } from './free-ports.ts';
import { type PostgresServer, startPostgres, until } from './postgres.ts';

export type PostgresPair = {
  primary: PostgresServer;
  standby: PostgresServer;
  /** A URL that names both servers. */
  urlOf: (database: string) => string;
  /** Makes the standby the new primary. */
  promote: () => Promise<void>;
};

export async function runSql(url: string, ...statements: string[]): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    let rows: Record<string, unknown>[] = [];
    for (const statement of statements) rows = (await client.query(statement)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

export async function startPostgresPair(): Promise<PostgresPair> {
  const [first = 0, second = 0] = await freePorts(2);
  const settings = (port: number) => ['listen_addresses=127.0.0.1', `port=${port}`];
  const primary = await startPostgres({ settings: settings(first) });
  await primary.stop();
  const standby = await startPostgres({
    copyOf: primary.data,
    settings: [...settings(second), `primary_conninfo=host=127.0.0.1 port=${first} user=postgres`],
    prepare: (data) => {
      const signal = join(data, 'standby.signal');
      writeFileSync(signal, '');
      const { uid, gid } = statSync(data);
      chownSync(signal, uid, gid);
    },
  });
  await primary.start();
  const isStreaming = async () => {
    const [row] = await runSql(
      primary.url,
      `select count(*)::int as n from pg_stat_replication where state = 'streaming'`,
    );
    return row?.n === 1;
  };
  await until(isStreaming, 'the standby follows the primary');
  // Only now, because without a standby no commit would end.
  await runSql(primary.url, `alter system set synchronous_standby_names = '*'`, 'select pg_reload_conf()');
  const isSynchronous = async () => {
    const [row] = await runSql(primary.url, `select sync_state from pg_stat_replication`);
    return row?.sync_state === 'sync';
  };
  await until(isSynchronous, 'commits wait for the standby');
  return {
    primary,
    standby,
    urlOf: (database) =>
      `postgres://postgres@127.0.0.1:${first},127.0.0.1:${second}/${database}?target_session_attrs=read-write`,
    promote: async () => void (await runSql(standby.url, 'select pg_promote()')),
  };
}
