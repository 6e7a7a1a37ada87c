// Says what is still on a host that is being emptied, and why.
import type { HostRemaining } from '@sandbar/contract/admin.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { whyMachineStays, whyVolumeStays } from '../moves/stays.ts';
import { refusedMoves } from '../moves/target.ts';

/** How many machines and volumes an answer has at most. */
const MOST = 100;

type UnderWay = { kind: string | null; last_error: string | null };
type Machine = Pick<MachineRow, 'id' | 'state' | 'error'> & UnderWay;
type Volume = Pick<VolumeRow, 'id' | 'state' | 'error' | 'machine_id'> & UnderWay;

/** Returns the machines and the detached volumes of a host, at most `MOST`, with the reason why each is still there. */
export async function listRemaining(app: App, hostId: string): Promise<HostRemaining[]> {
  const { rows: machines } = await sql<Machine>`
    select machines.id, machines.state, machines.error, operations.kind, operations.last_error
    from machines left join operations
      on operations.machine_id = machines.id and finished_at is null and kind <> 'expire'
    where machines.host_id = ${hostId} and machines.state <> 'destroyed'
    order by machines.id limit ${MOST}`.execute(app.db);
  const { rows: volumes } = await sql<Volume>`
    select volumes.id, volumes.state, volumes.error, volumes.machine_id, operations.kind, operations.last_error
    from volumes left join operations on operations.volume_id = volumes.id and finished_at is null
    where volumes.host_id = ${hostId} and volumes.machine_id is null
    order by volumes.id limit ${MOST}`.execute(app.db);
  const snapshots = await app.db
    .selectFrom('snapshots')
    .select(['id', 'machine_id', 'kind', 'state', 'error'])
    .where('host_id', '=', hostId)
    .where((is) => is.or([is('state', '<>', 'ready'), is('kind', '=', 'memory')]))
    .execute();
  const remaining: HostRemaining[] = [];
  for (const machine of machines) {
    const own = snapshots.filter(({ machine_id }) => machine_id === machine.id);
    const hasMemory = own.some(({ kind }) => kind === 'memory');
    const needs = hasMemory ? 'room for it, its image, and the processor of its memory snapshots' : ROOM_AND_IMAGE;
    const why = underWay(machine) ?? whyMachineStays(machine, [], own) ?? (await whyNowhere(app, machine.id, needs));
    remaining.push({ kind: 'machine', id: machine.id, why });
  }
  for (const volume of volumes.slice(0, MOST - machines.length)) {
    const why = underWay(volume) ?? whyVolumeStays(volume) ?? (await whyNowhere(app, volume.id, ROOM_AND_IMAGE));
    remaining.push({ kind: 'volume', id: volume.id, why });
  }
  return remaining;
}

function underWay({ kind, last_error }: UnderWay): string | undefined {
  if (kind === 'move')
    return last_error === null ? 'It is moving.' : `It is moving. The last try failed: ${last_error}`;
  return kind === null ? undefined : `Another operation of it is under way: ${kind}.`;
}

const ROOM_AND_IMAGE = 'room for it and its image';

/** `needs`: what another host must have. */
async function whyNowhere(app: App, id: string, needs: string): Promise<string> {
  const { reason } = await refusedMoves(app, id);
  return reason === undefined
    ? `It waits until another host has ${needs}.`
    : `No other host has taken it so far. The last one said: ${reason}`;
}
