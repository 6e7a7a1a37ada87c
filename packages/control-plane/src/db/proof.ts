// Proves that a connection can be used: its server accepts writes, and the connection has the role of the application.
// A standby accepts connections too, and so does a former primary that somebody started again by hand.
import type { ClientBase } from 'pg';
import { UnusableServer } from './failures.ts';

/** How long a server may take to answer the proof, in milliseconds. */
const PROOF_MS = 2_000;

/**
 * The timeline grows with each promotion of a standby. The first 8 hex digits of a WAL file's name are the timeline of
 * the server.
 */
const TIMELINE = `case when pg_is_in_recovery() then null else left(pg_walfile_name(pg_current_wal_lsn()), 8) end`;
const PROOF = `select pg_is_in_recovery() as is_standby, current_setting('transaction_read_only') = 'on' as is_read_only,
  current_user as role`;

type Row = { is_standby: boolean; is_read_only: boolean; role: string; timeline?: string | null };

/** `role`: the role that the connection must have; undefined: any. */
export async function proveConnection(client: ClientBase, role: string | undefined): Promise<void> {
  check(await ask(client, PROOF), role);
}

/** Proves a connection and returns the timeline of its server. */
export async function proveWithTimeline(client: ClientBase, role: string | undefined): Promise<number> {
  const row = await ask(client, `${PROOF}, ${TIMELINE} as timeline`);
  check(row, role);
  return Number.parseInt(row.timeline ?? '0', 16);
}

async function ask(client: ClientBase, text: string): Promise<Row> {
  const query = { text, query_timeout: PROOF_MS };
  const { rows } = await client.query<Row>(query);
  const [row] = rows;
  if (!row) throw new UnusableServer('the server gave no answer to a question about itself');
  return row;
}

function check({ is_standby, is_read_only, role }: Row, wanted: string | undefined): void {
  if (is_standby) throw new UnusableServer('the server is a standby and accepts no writes');
  if (is_read_only) throw new UnusableServer('the server is read-only');
  if (wanted === undefined || role === wanted) return;
  // Without this role, the application could change the ledger and the activity feed.
  throw new UnusableServer(
    `the connection has the role ${role} instead of ${wanted}: a pooler ignores the option "role" of connections`,
  );
}
