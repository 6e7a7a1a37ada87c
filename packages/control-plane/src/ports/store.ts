// The SQL of ports: which machine a request is for, and which of its ports are public.

import type { MachineState } from '@sandbar/contract/machine-states.ts';
import { PORT_BOUNDS } from '@sandbar/contract/port.ts';
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { PortTarget } from './connections.ts';

export type FoundPort = {
  target: PortTarget;
  state: MachineState;
  isPublic: boolean;
  /** Whether the account of the machine is suspended. */
  isSuspended: boolean;
};

const selectPort = statement((db, of: { machineId: string; port: number }) =>
  db
    .selectFrom('machines as m')
    .innerJoin('accounts as a', 'a.id', 'm.account_id')
    .leftJoin('public_ports as p', (join) => join.onRef('p.machine_id', '=', 'm.id').on('p.port', '=', of.port))
    .select(['m.account_id', 'm.host_id', 'm.state', sql<boolean>`p.port is not null`.as('is_public')])
    .select(sql<boolean>`a.suspended_at is not null`.as('is_suspended'))
    .where('m.id', '=', of.machineId)
    .where('m.state', '<>', sql.lit('destroyed'))
    .where('a.deleted_at', 'is', null),
);

/**
 * Returns a port of a machine of any account, by one query. Undefined for a machine that is absent or destroyed, or
 * whose account is deleted.
 */
export async function findPort(db: Db, machineId: string, port: number): Promise<FoundPort | undefined> {
  const [row] = await selectPort(db, { machineId, port });
  if (!row) return undefined;
  return {
    target: { accountId: row.account_id, hostId: row.host_id, machineId, port },
    state: row.state,
    isPublic: row.is_public,
    isSuspended: row.is_suspended,
  };
}

/** Returns the public ports of a machine, in order. */
export async function listPublicPorts(db: Db, machineId: string): Promise<number[]> {
  const rows = await db
    .selectFrom('public_ports')
    .select('port')
    .where('machine_id', '=', machineId)
    .orderBy('port')
    .execute();
  return rows.map(({ port }) => port);
}

/** Makes a port public. Returns false when the machine has the most public ports already. May be repeated. */
export async function addPublicPort(db: Db, machineId: string, port: number): Promise<boolean> {
  const { rows } = await sql<{ is_public: boolean }>`
    with added as (
      insert into public_ports (machine_id, port)
      select ${machineId}::uuid, ${port}::integer
      where (select count(*) from public_ports where machine_id = ${machineId}::uuid) < ${PORT_BOUNDS.publicPorts}
      on conflict do nothing returning port
    )
    select exists (select from added union all
      select from public_ports where machine_id = ${machineId}::uuid and port = ${port}::integer) as is_public`.execute(
    db,
  );
  return rows[0]?.is_public ?? false;
}

/** Makes a port private. Does nothing when it is private already. */
export async function removePublicPort(db: Db, machineId: string, port: number): Promise<void> {
  await db.deleteFrom('public_ports').where('machine_id', '=', machineId).where('port', '=', port).execute();
}
