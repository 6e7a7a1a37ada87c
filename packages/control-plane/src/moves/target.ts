// Chooses the host to which a machine or a volume moves.
import { sql } from 'kysely';
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { chooseReachableHost } from '../hosts/choose-host.ts';
import { HostUnavailable } from '../hosts/client.ts';
import type { HostFacts } from '../hosts/host-table.ts';
import type { Room } from '../hosts/room.ts';
import { admitsAccount } from '../machines/tenancy.ts';

export type MoveRequest = {
  accountId: string;
  fromHostId: string;
  room: Room;
  /** The image that the new host must have; undefined for a data volume. */
  stack: string | undefined;
  /** What the new host must give its machines, as in {@link MoveNeeds}. */
  processor?: string | null | undefined;
  /** Hosts that must not be chosen. */
  avoid: ReadonlySet<string>;
};

/** Returns the id of a host that can take it, or undefined when there is none now. */
export async function chooseTarget(app: App, request: MoveRequest): Promise<string | undefined> {
  const { accountId, fromHostId, room, stack, processor, avoid } = request;
  const isAble = (host: HostFacts) => processor === undefined || (processor !== null && host.processor === processor);
  const account = await getAccount(app.db, accountId);
  const hosts = (await app.hostTable.read()).filter(
    (host) => host.id !== fromHostId && isAble(host) && admitsAccount(app, host, account),
  );
  try {
    return chooseReachableHost(app, hosts, { room, stack }, avoid)?.id;
  } catch (error) {
    if (error instanceof HostUnavailable) return undefined;
    throw error;
  }
}

/** A refusal for want of room is forgotten after this time, in seconds. Others last as long as their operation is kept. */
const FULL_SEC = 60;

/** Returns the hosts that have refused a move of this object lately, and the last reason. */
export async function refusedMoves(
  app: App,
  id: string,
): Promise<{ hostIds: Set<string>; reason: string | undefined }> {
  const { rows } = await sql<{ host_id: string; reason: string | null; is_over: boolean }>`
    select args ->> 'to_host_id' as host_id, last_error as reason,
      error_code = 'fleet_capacity' and finished_at < now() - ${FULL_SEC}::int * interval '1 second' as is_over
    from operations
    where kind = 'move' and finished_at is not null and error_code is not null
      and coalesce(machine_id, volume_id) = ${id}
    order by finished_at desc`.execute(app.db);
  const hostIds = new Set(rows.filter((row) => !row.is_over).map((row) => row.host_id));
  return { hostIds, reason: rows[0]?.reason ?? undefined };
}
