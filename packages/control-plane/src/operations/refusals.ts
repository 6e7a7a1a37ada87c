// The refusals that operations share, worded once.
import { ServiceError } from '@sandbar/contract/errors.ts';

/** Another process finishes the operation, or a delete of the machine ended it. */
export class ClaimLost extends ServiceError {
  constructor() {
    super('conflict', 'The machine was deleted meanwhile.');
  }
}

export const machineWasDeleted = (): ServiceError => new ServiceError('conflict', 'The machine was deleted meanwhile.');

export const machineIsLeaving = (): ServiceError => new ServiceError('conflict', 'The machine is being deleted.');

export const isShuttingDown = (): ServiceError =>
  new ServiceError('shutting_down', 'The service is shutting down. Retry.', { retryAfterSec: 2 });
