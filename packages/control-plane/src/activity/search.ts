// What `q` is matched against: one lower-case text made of the action, the actor and the resource ids. The index of the
// migration and the query must use the same expression, so it is written once, and never changed without a migration.

import { ACTIVITY_ACTIONS, ACTIVITY_ACTORS } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';

export const ACTIVITY_SEARCH_TEXT = sql.raw(`(
  action || ' ' || actor || ' ' || coalesce(machine_id, '') || ' ' ||
  coalesce(metadata ->> 'volume_id', metadata ->> 'snapshot_id', ''))`);

const WORDS = [...Object.keys(ACTIVITY_ACTIONS), ...ACTIVITY_ACTORS];
const ID_SHAPE = 'xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx';

/** A term as the query needs it: `like` finds candidates by the index, `term` is what they must contain. */
export type Search = { like: string; term: string };

/**
 * Each trigram of a pattern is one more list of the index to read, so only the end of a long term is looked up: of an id
 * (version 7) that is the random part. Measured at 5 million entries on a busy machine: a
 * machine's whole id took 104 ms, its end 9.
 */
const LOOKED_UP = 10;

/**
 * What to search for, or undefined when no entry can match: `q` is part of no action, no actor and no id. Short terms
 * have no trigram, so this also keeps a hopeless one from reading the whole feed.
 */
export function readSearch(q: string): Search | undefined {
  const term = q.toLowerCase();
  const isPossible = isPartOfId(term) || WORDS.some((word) => word.includes(term));
  if (!isPossible) return undefined;
  return { like: `%${term.slice(-LOOKED_UP).replaceAll(/[\\%_]/g, '\\$&')}%`, term };
}

/** Whether a UUID can contain the term: hexadecimal digits, and hyphens only where one has them. */
function isPartOfId(term: string): boolean {
  if (!/^[0-9a-f-]+$/.test(term)) return false;
  const shape = term.replaceAll(/[0-9a-f]/g, 'x');
  return ID_SHAPE.includes(shape);
}
