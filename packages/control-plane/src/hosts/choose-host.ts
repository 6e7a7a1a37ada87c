// Chooses a host that answers and can take a new machine or volume.
import type { App } from '../app.ts';
import { HostUnavailable } from './client.ts';
import type { HostFacts } from './host-table.ts';
import { chooseHost, type PlacementRequest } from './placement.ts';
import { reachability } from './reachable.ts';

/**
 * Returns one of `hosts` for a new machine or volume, and adds its room to the table, so that parallel requests see it.
 * Returns undefined when none has room. `tried`: ids of hosts that have refused the request. Throws `host_unavailable`
 * when no host is reachable.
 */
export function chooseReachableHost(
  app: App,
  hosts: readonly HostFacts[],
  request: PlacementRequest,
  tried: ReadonlySet<string>,
): HostFacts | undefined {
  const isReachable = reachability(app);
  if (!hosts.some(isReachable)) throw new HostUnavailable(false);
  const mayUse = (host: HostFacts) => isReachable(host) && !tried.has(host.id);
  const host = chooseHost(hosts, request, app.config.overcommit, Math.random, mayUse);
  if (host) app.hostTable.addReservation(host, request.room);
  return host;
}
