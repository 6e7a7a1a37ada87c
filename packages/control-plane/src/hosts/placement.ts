// Chooses the host of a new machine. A pure function of the hosts' rows. It only proposes an order: parallel requests
// may choose the same host, and the conditional UPDATE in `reserveMemory` decides which of them get its memory.
import type { HostRow } from '../db/tables.ts';

/**
 * `memoryMb`: memory of the machine in MiB. `stack`: the image that the host must have; undefined if the machine needs
 * no image.
 */
export type PlacementRequest = { memoryMb: number; stack: string | undefined };
export type Candidate = Pick<HostRow, 'id' | 'memory_mb' | 'reserved_memory_mb' | 'images' | 'draining'>;

/**
 * Returns the hosts that have room for the machine; the host with the most unreserved memory comes first. A host may
 * promise `overcommit` times its physical memory, but a single machine must fit into the physical memory. Draining
 * hosts get no new machines.
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
