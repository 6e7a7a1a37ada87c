// Chooses the host of a new volume. A volume never moves and can only be attached to machines of its host. So it is
// placed on the host where the next machine would be placed. A pure function of the hosts' rows.
import type { HostRow } from '../db/tables.ts';

type Candidate = Pick<HostRow, 'id' | 'memory_mb' | 'reserved_memory_mb' | 'draining'>;

/**
 * Returns the hosts that accept new volumes. The host with the most unreserved memory comes first. `overcommit`: how
 * many times its memory a host may promise.
 */
export function rankHostsForVolume<T extends Candidate>(hosts: readonly T[], overcommit: number): T[] {
  const room = (host: Candidate) => host.memory_mb * overcommit - host.reserved_memory_mb;
  return hosts.filter((host) => !host.draining).sort((a, b) => room(b) - room(a) || (a.id < b.id ? -1 : 1));
}
