// Where a new volume goes: a pure rule over host rows. A volume never moves, so it goes where its machine would go.
import type { HostRow } from '../db/tables.ts';

type Candidate = Pick<HostRow, 'id' | 'memory_mb' | 'reserved_memory_mb' | 'draining'>;

/** The hosts that take new volumes, those with the most room for machines first. */
export function rankHostsForVolume<T extends Candidate>(hosts: readonly T[], overcommit: number): T[] {
  const room = (host: Candidate) => host.memory_mb * overcommit - host.reserved_memory_mb;
  return hosts.filter((host) => !host.draining).sort((a, b) => room(b) - room(a) || (a.id < b.id ? -1 : 1));
}
