// Which hosts can be asked now.
import type { App } from '../app.ts';

/** Returns a function that says whether this replica can reach a host at this moment. */
export function reachability(app: App): (host: { id: string }) => boolean {
  const reachable = new Set(app.hosts.reachableIds());
  return ({ id }) => reachable.has(id);
}
