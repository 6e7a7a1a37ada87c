// The refusals that several machine operations share, worded once.
import { ServiceError } from '@sandbar/contract/errors.ts';

export const machineNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such machine.');

/** Of a delete that comes after another one. */
export const machineIsDestroyed = (at: Date | null): ServiceError =>
  new ServiceError('not_found', `The machine is destroyed already${at ? `, since ${at.toISOString()}` : ''}.`);

export function fleetIsFull(memoryMb: number): ServiceError {
  const detail =
    `No host has room for a machine of ${memoryMb} MiB now. This is a limit of the fleet, not a quota of the account: ` +
    'retry later.';
  return new ServiceError('fleet_capacity', detail, { retryAfterSec: 10 });
}

/** The host that a create is pinned to has no room; `source` is what pins it. */
export function hostIsFull(source: 'snapshot' | 'volume', memoryMb: number): ServiceError {
  const detail =
    `The host of the ${source} has no room for a machine of ${memoryMb} MiB now. This is a limit of the fleet, not a quota ` +
    'of the account: retry later.';
  return new ServiceError('fleet_capacity', detail, { retryAfterSec: 10 });
}
