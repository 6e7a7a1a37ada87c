// Errors that several machine operations throw, so that clients read the same text everywhere.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Room } from '../hosts/room.ts';

export const machineNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such machine.');

/** The error for a request on a machine that is destroyed already. `at`: when it was destroyed. */
export const machineIsDestroyed = (at: Date | null): ServiceError =>
  new ServiceError('not_found', `The machine is destroyed already${at ? `, since ${at.toISOString()}` : ''}.`);

export function fleetIsFull(room: Room): ServiceError {
  const detail = `No host has room for ${inWords(room)} now. This is a limit of the fleet, not a quota of the account: retry later.`;
  return new ServiceError('fleet_capacity', detail, { retryAfterSec: 10 });
}

/**
 * The only possible host of a new machine has no room. A machine must be created on the host of its snapshot or root
 * volume; `source` says which of the two.
 */
export function hostIsFull(source: 'snapshot' | 'volume', room: Room): ServiceError {
  const detail =
    `The host of the ${source} has no room for ${inWords(room)} now. This is a limit of the fleet, not a quota of the ` +
    'account: retry later.';
  return new ServiceError('fleet_capacity', detail, { retryAfterSec: 10 });
}

function inWords({ memoryMb, vcpus, diskGb }: Room): string {
  const parts = [
    memoryMb > 0 ? `${memoryMb} MiB of memory` : '',
    vcpus > 0 ? `${vcpus} vCPUs` : '',
    diskGb > 0 ? `${diskGb} GiB of disk` : '',
  ].filter((part) => part !== '');
  return parts.join(', ');
}
