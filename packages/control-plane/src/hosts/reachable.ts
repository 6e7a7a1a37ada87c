// Which hosts can be asked now.
import type { App } from '../app.ts';
import { oncePerList } from './once-per-list.ts';

/** Returns a function that says whether this replica can reach a host at this moment. */
export function reachability(app: App): (host: { id: string }) => boolean {
  const reachable = setOf(app.hosts.reachableIds());
  return ({ id }) => reachable.has(id);
}

const setOf = oncePerList((ids: readonly string[]) => new Set(ids));
