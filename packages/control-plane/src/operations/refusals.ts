// Errors that several operations throw, so that clients read the same text everywhere.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OperationRow } from '../db/tables.ts';

/**
 * This process has lost its claim on the operation: another process claimed it, or a delete of the machine cancelled
 * it.
 */
export class ClaimLost extends ServiceError {
  constructor() {
    super('conflict', 'The machine was deleted meanwhile.');
  }
}

export const machineWasDeleted = (): ServiceError => new ServiceError('conflict', 'The machine was deleted meanwhile.');

export const machineIsLeaving = (): ServiceError => new ServiceError('conflict', 'The machine is being deleted.');

/** For an attach of a volume that is moving for the attach to another machine. */
export const volumeIsTaken = ({ volume_id, args }: Pick<OperationRow, 'volume_id' | 'args'>): ServiceError =>
  new ServiceError(
    'conflict',
    `The volume ${volume_id} is moving to the host of machine ${args.for_machine_id}, to be attached there.`,
  );

export const isShuttingDown = (): ServiceError =>
  new ServiceError('shutting_down', 'The service is shutting down. Retry.', { retryAfterSec: 2 });
