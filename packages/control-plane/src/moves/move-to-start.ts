// Moves a stopped machine whose host cannot start it for want of room.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { getMachineRow, lockMachine } from '../machines/store.ts';
import { isOvertaken } from '../operations/request.ts';
import { lockUnfinished } from '../operations/store.ts';
import { joinOperation } from '../operations/wait.ts';
import { beginMachineMove } from './begin.ts';
import { needsOfMove } from './needs.ts';
import { chooseTarget, refusedMoves } from './target.ts';

/**
 * Moves a stopped machine to a host that can start it and waits for the end. Returns false when there is no such host or
 * the machine cannot move. `deadline`: when to stop waiting, in milliseconds of `performance.now()`. Throws `conflict` at
 * the deadline, and the refusal of the move.
 */
export async function moveToStart(app: App, id: string, deadline: number): Promise<boolean> {
  const row = await getMachineRow(app.db, id);
  if (row?.state !== 'stopped') return false;
  const { hostIds: avoid } = await refusedMoves(app, id);
  const { account_id: accountId, host_id: fromHostId, stack, vcpus, memory_mb: memoryMb } = row;
  const { room: disks, processor } = await needsOfMove(app, row);
  const room = { ...disks, vcpus, memoryMb };
  const toHostId = await chooseTarget(app, { accountId, fromHostId, room, stack, processor, avoid });
  if (toHostId === undefined) return false;
  const operationId = await inTransaction(app.db, async (tx) => {
    const [machine, unfinished] = await Promise.all([lockMachine(tx, id), lockUnfinished(tx, { machineId: id })]);
    if (machine?.host_id !== fromHostId || unfinished.length > 0) return undefined;
    return beginMachineMove(app, tx, machine, { toHostId, actor: 'user' });
  }).catch((error: unknown) => {
    if (error instanceof ServiceError || isOvertaken(error)) return undefined;
    throw error;
  });
  if (operationId === undefined) return false;
  app.reconcileSoon();
  await joinOperation(app, operationId, deadline);
  return true;
}
