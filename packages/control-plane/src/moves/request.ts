// Moves volumes for a request that needs them on another host. The request waits for the move, a minute at most, and a
// retry of the request goes on waiting. The move itself goes on in any case.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { volumeIsTaken } from '../operations/refusals.ts';
import { isForOther } from '../operations/relate.ts';
import { isOvertaken } from '../operations/request.ts';
import { getOperation, lockUnfinished } from '../operations/store.ts';
import { joinOperation, waitForOperation } from '../operations/wait.ts';
import { beginVolumeMove } from './begin.ts';

/** The request needs volumes on another host first. It is made again after they have moved. */
export class MustMove extends ServiceError {
  readonly volumes: readonly MovedVolume[];
  readonly toHostId: string;
  /** The machine to which the request attaches the volume; undefined for a create. */
  readonly forMachineId: string | undefined;
  constructor(volumes: readonly MovedVolume[], toHostId: string, forMachineId?: string) {
    super('conflict', 'The volumes have to move to another host first. Retry.', { retryAfterSec: 2 });
    this.volumes = volumes;
    this.toHostId = toHostId;
    this.forMachineId = forMachineId;
  }
}
export type MovedVolume = Pick<VolumeRow, 'id' | 'account_id' | 'host_id'>;

/**
 * Moves detached volumes to a host and waits until they are there. `deadline`: when to stop waiting, in milliseconds of
 * `performance.now()`. Throws `conflict` at the deadline, `host_unavailable` when a volume's host is away, and the refusals
 * of the moves.
 */
export async function moveVolumes(app: App, need: MustMove, deadline: number): Promise<void> {
  const begun: string[] = [];
  for (const volume of need.volumes) {
    const id = await beginOne(app, volume, need, deadline).catch((error: unknown) => {
      const isFull = error instanceof ServiceError && error.code === 'fleet_capacity';
      throw isFull ? new MoveRefused(error) : error;
    });
    if (id !== undefined) begun.push(id);
  }
  app.reconcileSoon();
  for (const id of begun) {
    await joinOperation(app, id, deadline).catch(async (error: unknown) => {
      const row = await getOperation(app.db, id);
      throw row?.finished_at && error instanceof ServiceError ? new MoveRefused(error) : error;
    });
  }
}

/** The other host refused the volume: it has no room for it, or not its image. */
class MoveRefused extends ServiceError {
  constructor(cause: ServiceError) {
    const { code, message, retryAfterSec } = cause;
    super(code, message, retryAfterSec === undefined ? { cause } : { cause, retryAfterSec });
  }
}

/**
 * Begins the move of a volume as soon as no other operation on it is unfinished. A volume on a host that is away cannot be
 * copied, so nothing begins. Throws `conflict` when it moves elsewhere for an attach to another machine.
 */
async function beginOne(
  app: App,
  volume: MovedVolume,
  { toHostId, forMachineId }: MustMove,
  deadline: number,
): Promise<string | undefined> {
  for (;;) {
    if (!app.hosts.reachableIds().includes(volume.host_id)) throw new HostUnavailable(false);
    const step = await inTransaction(app.db, async (tx) => {
      const [underWay] = await lockUnfinished(tx, { volumeId: volume.id });
      if (underWay?.kind === 'move' && underWay.args.to_host_id === toHostId) return { begun: underWay.id };
      if (underWay && forMachineId !== undefined && isForOther(underWay, forMachineId)) throw volumeIsTaken(underWay);
      if (underWay) return { wait: underWay.id };
      const route = { fromHostId: volume.host_id, toHostId, actor: 'user' } as const;
      const purpose = forMachineId === undefined ? {} : { forMachineId };
      return { begun: await beginVolumeMove(app, tx, volume, { ...route, ...purpose }) };
    }).catch((error: unknown) => {
      // Another operation began at the same moment.
      if (isOvertaken(error)) return undefined;
      throw error;
    });
    if (step === undefined) continue;
    if (step.wait === undefined) return step.begun;
    await waitForOperation(app, step.wait, deadline);
  }
}

/** How often a request may have its volumes moved. They may be moved away in between, for example by a drain. */
const ROUNDS_MAX = 4;

/**
 * Makes a request, and again after the moves that it needs. `waitMs`: how long the request may still wait, in
 * milliseconds. `avoid`: hosts that the request must not choose again, because a move to them was refused; without it,
 * the refusal is thrown. Throws the errors of the request and of `moveVolumes`.
 */
export async function movingVolumes<T>(
  app: App,
  request: (waitMs: number) => Promise<T>,
  avoid?: Set<string>,
): Promise<T> {
  const deadline = performance.now() + app.config.timing.operationWaitMs;
  for (let round = 1; ; round++) {
    try {
      return await request(Math.max(0, deadline - performance.now()));
    } catch (error) {
      if (!(error instanceof MustMove) || round > ROUNDS_MAX) throw error;
      await moveVolumes(app, error, deadline).catch((failure: unknown) => {
        if (!avoid || !(failure instanceof MoveRefused)) throw failure;
        avoid.add(error.toHostId);
      });
    }
  }
}
