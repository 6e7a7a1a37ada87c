// Empties the hosts that an operator drains: stopped machines and detached volumes move to other hosts, a few at a time.
// What has begun is a row of `operations`, so a drain goes on after the death of any process. Each host is emptied by the
// replica that listens to it. What cannot move stays, and `admin/host-remaining.ts` tells the operator why.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { isDatabaseAway } from '../db/failures.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { NO_ROOM } from '../hosts/room.ts';
import { lockMachine } from '../machines/store.ts';
import { beginMachineMove, beginVolumeMove } from '../moves/begin.ts';
import { needsOfMove } from '../moves/needs.ts';
import { chooseTarget, refusedMoves } from '../moves/target.ts';
import { isOvertaken } from '../operations/request.ts';
import { lockUnfinished, type Subject } from '../operations/store.ts';

/** How many moves from one host are under way at once. Each reads from the disk of the host at full speed. */
const WIDTH = 4;
/** How many candidates are looked at in a pass, so that some which cannot move do not hold up the others. */
const LOOKED_AT = 50;
const ACTOR = 'system:operator';

/** Begins moves from the draining hosts that this replica listens to. */
export async function emptyDraining(app: App): Promise<void> {
  const hosts = await app.db
    .selectFrom('hosts')
    .select('id')
    .where('emptying', '=', true)
    .where('removed_at', 'is', null)
    .where((is) => is('id', '=', is.fn.any(is.val(app.hosts.listenedIds()))))
    .execute();
  for (const { id } of hosts) await empty(app, id);
}

async function empty(app: App, hostId: string): Promise<void> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from operations
    where kind = 'move' and host_id = ${hostId} and finished_at is null`.execute(app.db);
  let free = WIDTH - (rows[0]?.count ?? 0);
  if (free <= 0) return;
  const begins = [
    ...(await machinesToMove(app, hostId)).map((machine) => () => moveMachine(app, machine)),
    ...(await volumesToMove(app, hostId)).map((volume) => () => moveVolume(app, volume)),
  ];
  for (const begin of begins) {
    if (free <= 0) break;
    if (!(await begin())) continue;
    free--;
    app.reconcileSoon();
  }
}

const isIdle = (column: 'machine_id' | 'volume_id', id: string) => sql<boolean>`not exists (
  select from operations
  where ${sql.ref(`operations.${column}`)} = ${sql.ref(id)} and finished_at is null and kind <> 'expire')`;

function machinesToMove(app: App, hostId: string): Promise<MachineRow[]> {
  return app.db
    .selectFrom('machines')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('state', '=', 'stopped')
    .where(isIdle('machine_id', 'machines.id'))
    .where(sql<boolean>`not exists (
      select from snapshots where snapshots.machine_id = machines.id and snapshots.state <> 'ready')`)
    .orderBy(sql`random()`)
    .limit(LOOKED_AT)
    .execute();
}

function volumesToMove(app: App, hostId: string): Promise<VolumeRow[]> {
  return app.db
    .selectFrom('volumes')
    .selectAll()
    .where('host_id', '=', hostId)
    .where('state', '=', 'available')
    .where('machine_id', 'is', null)
    .where(isIdle('volume_id', 'volumes.id'))
    .orderBy(sql`random()`)
    .limit(LOOKED_AT)
    .execute();
}

async function moveMachine(app: App, row: MachineRow): Promise<boolean> {
  const { id, account_id, host_id, stack } = row;
  const { hostIds: avoid } = await refusedMoves(app, id);
  const needs = await needsOfMove(app, row);
  const toHostId = await chooseTarget(app, { accountId: account_id, fromHostId: host_id, ...needs, stack, avoid });
  if (toHostId === undefined) return false;
  return begin(app, { machineId: id }, toHostId, async (tx) => {
    const machine = await lockMachine(tx, id);
    if (machine?.host_id === host_id) await beginMachineMove(app, tx, machine, { toHostId, actor: ACTOR });
  });
}

async function moveVolume(app: App, { id, account_id, host_id, stack, size_gb }: VolumeRow): Promise<boolean> {
  const { hostIds: avoid } = await refusedMoves(app, id);
  const room = { ...NO_ROOM, diskGb: size_gb };
  const request = { accountId: account_id, fromHostId: host_id, room, stack: stack ?? undefined, avoid };
  const toHostId = await chooseTarget(app, request);
  if (toHostId === undefined) return false;
  const route = { fromHostId: host_id, toHostId, actor: ACTOR } as const;
  return begin(app, { volumeId: id }, toHostId, (tx) => beginVolumeMove(app, tx, { id, account_id }, route));
}

/** Begins a move unless the object is busy by now. Returns whether it did. A later pass tries what did not begin. */
async function begin(
  app: App,
  subject: Subject,
  toHostId: string,
  insert: (tx: Tx) => Promise<unknown>,
): Promise<boolean> {
  try {
    return await inTransaction(app.db, async (tx) => {
      if ((await lockUnfinished(tx, subject)).length > 0) return false;
      await insert(tx);
      return true;
    });
  } catch (err) {
    if (isDatabaseAway(err) || !(err instanceof ServiceError || isOvertaken(err))) throw err;
    if (err instanceof ServiceError && err.code === 'fleet_capacity') app.hostTable.addRefusal(toHostId);
    app.log.debug({ err, ...subject }, 'a move did not begin');
    return false;
  }
}
