// Where a new machine goes: a pure rule over host rows. It only proposes an order; the conditional UPDATE that reserves
// the memory decides.
import type { HostRow } from '../db/tables.ts';

/** `stack`: the image that the host must have; undefined when none is needed. */
export type PlacementRequest = { memoryMb: number; stack: string | undefined };
export type Candidate = Pick<HostRow, 'id' | 'memory_mb' | 'reserved_memory_mb' | 'images' | 'draining'>;

/**
 * The hosts that can take the machine now, emptiest first. A machine needs a host whose physical memory holds it whole,
 * however much may be promised beyond it, and none goes to a host that is being emptied.
 */
export function rankHosts<T extends Candidate>(
  hosts: readonly T[],
  request: PlacementRequest,
  overcommit: number,
): T[] {
  const room = (host: Candidate) => host.memory_mb * overcommit - host.reserved_memory_mb;
  return hosts
    .filter((host) => !host.draining)
    .filter((host) => request.memoryMb <= host.memory_mb && request.memoryMb <= room(host))
    .filter(({ images }) => request.stack === undefined || images.some((image) => image.stack === request.stack))
    .sort((a, b) => room(b) - room(a) || (a.id < b.id ? -1 : 1));
}
