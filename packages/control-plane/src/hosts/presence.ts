// What this replica sees of the hosts that it listens to: which were heard from, and which cannot be reached. It writes
// the changes of many hosts with one statement, because all hosts of a network can go away at the same moment.
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import { CHANNELS, notify } from '../db/notifications.ts';
import { hastenOperations } from '../operations/store.ts';

export type Presence = {
  /** Something arrived from the host. It is recorded with the next renewal of the leases. */
  noteSeen(hostId: string): void;
  /** The hosts that were heard from since the last call. */
  takeSeen(): string[];
  /** The host cannot be reached. Throws when the database does not answer. */
  noteAway(hostId: string): Promise<void>;
  /** The host's event stream is open. Throws when the database does not answer. */
  noteBack(hostId: string): Promise<void>;
  /** This replica does not listen to the host any more. */
  forget(hostId: string): void;
  /** The hosts that could not be reached since, in milliseconds of `performance.now()`. */
  failing(): ReadonlyMap<string, number>;
};

/** `onChange` is called after a change of the rows. */
export function createPresence(db: Db, replicaId: string, seenMs: number, onChange: () => void): Presence {
  const seen = new Set<string>();
  const failing = new Map<string, number>();
  const recordedAway = new Set<string>();
  const write = async (statement: (ids: readonly string[]) => Promise<boolean>, ids: readonly string[]) => {
    if (!(await statement(ids))) return;
    await notify(db, CHANNELS.hosts);
    onChange();
  };
  const away = collect((ids) => write((those) => recordAway(db, replicaId, those), ids));
  const back = collect(async (ids) => {
    await write((those) => recordBack(db, replicaId, those, seenMs), ids);
    // Retry now the operations that failed because the hosts were unreachable.
    await hastenOperations(db, { hostIds: ids });
  });
  return {
    noteSeen: (hostId) => void seen.add(hostId),
    takeSeen: () => {
      const ids = [...seen];
      seen.clear();
      return ids;
    },
    noteAway: async (hostId) => {
      seen.delete(hostId);
      if (!failing.has(hostId)) failing.set(hostId, performance.now());
      if (recordedAway.has(hostId)) return;
      await away(hostId);
      recordedAway.add(hostId);
    },
    noteBack: async (hostId) => {
      failing.delete(hostId);
      recordedAway.delete(hostId);
      seen.add(hostId);
      await back(hostId);
    },
    forget: (hostId) => {
      seen.delete(hostId);
      failing.delete(hostId);
      recordedAway.delete(hostId);
    },
    failing: () => failing,
  };
}

/** Records since when hosts are away. Returns whether a row changed. */
async function recordAway(db: Db, replicaId: string, hostIds: readonly string[]): Promise<boolean> {
  const { numAffectedRows } = await sql`
    update hosts set away_since = now()
    where id in (select id from hosts
      where id = any(${[...hostIds]}::uuid[]) and listener_id = ${replicaId} and away_since is null
      order by id for no key update)`.execute(db);
  return numAffectedRows !== 0n;
}

/** Records that hosts are reached. Returns whether another replica may have taken one of them for away. */
async function recordBack(db: Db, replicaId: string, hostIds: readonly string[], seenMs: number): Promise<boolean> {
  const { rows } = await sql<{ changed: boolean }>`
    with old as (
      select id, away_since is not null or seen_at < now() - ${seenMs}::int * interval '1 millisecond' as changed
      from hosts where id = any(${[...hostIds]}::uuid[]) and listener_id = ${replicaId}
      order by id for no key update)
    update hosts set away_since = null, seen_at = now() from old where hosts.id = old.id
    returning old.changed`.execute(db);
  return rows.some(({ changed }) => changed);
}

/** Returns a function that calls `write` with all ids that it was given in the same turn, or while `write` ran. */
function collect(write: (ids: readonly string[]) => Promise<void>): (id: string) => Promise<void> {
  let waiting: string[] = [];
  let next: Promise<void> | undefined;
  let running: Promise<void> = Promise.resolve();
  const flush = async () => {
    await running.catch(() => undefined);
    const ids = waiting;
    waiting = [];
    next = undefined;
    running = write(ids);
    await running;
  };
  return (id) => {
    waiting.push(id);
    next ??= flush();
    return next;
  };
}
