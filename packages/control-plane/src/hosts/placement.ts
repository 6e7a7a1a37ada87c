// Chooses the host of a new machine or volume. A pure function of the hosts' rows. It only proposes an order: parallel
// requests may choose the same host, and the conditional UPDATE in `reserveRoom` decides which of them get its room.
import type { HostRow } from '../db/tables.ts';
import { type HostRoom, hasRoomFor, type Overcommit, type Room, unpromised } from './room.ts';

/** `stack`: the image that the host must have; undefined if none is needed, as for a volume. */
export type PlacementRequest = { room: Room; stack: string | undefined };
export type Candidate = HostRoom & Pick<HostRow, 'id' | 'images' | 'draining'>;

/**
 * Returns the hosts that have room; the host with the most unreserved memory comes first. A volume never moves and can
 * only be attached to machines of its host, so it is placed where the next machine would be placed. Draining hosts are
 * left out.
 */
export function rankHosts<T extends Candidate>(
  hosts: readonly T[],
  { room, stack }: PlacementRequest,
  overcommit: Overcommit,
): T[] {
  const memoryOf = (host: Candidate) => unpromised(host, overcommit).memoryMb;
  return hosts
    .filter((host) => !host.draining && hasRoomFor(host, room, overcommit))
    .filter(({ images }) => stack === undefined || images.some((image) => image.stack === stack))
    .sort((a, b) => memoryOf(b) - memoryOf(a) || (a.id < b.id ? -1 : 1));
}
