// The search of the feed (`q`). It searches one text that is made of an entry's action, actor and resource ids. The
// migration that makes the index and the query must use the same expression, so both import it from here. A change of
// it needs a new migration.

import { ACTIVITY_ACTIONS, ACTIVITY_ACTORS } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';

export const ACTIVITY_SEARCH_TEXT = sql.raw(`(
  action || ' ' || actor || ' ' || coalesce(machine_id, '') || ' ' ||
  coalesce(metadata ->> 'volume_id', metadata ->> 'snapshot_id', ''))`);

const WORDS = [...Object.keys(ACTIVITY_ACTIONS), ...ACTIVITY_ACTORS];
const ID_SHAPE = 'xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx';

/** A search term for the query: `like` finds candidates through the index; a match must also contain all of `term`. */
export type Search = { like: string; term: string };

/**
 * How many of a term's last characters are looked up in the index. The index consists of trigrams (parts of three
 * characters), and each further trigram costs the reading of another list. A UUID of version 7 ends with random
 * characters, so its end alone finds few candidates. Measured with 5 million entries on a busy machine: the lookup of a
 * whole machine id took 104 ms, that of its end 9 ms.
 */
const LOOKED_UP = 10;

/**
 * Returns the search for `q`, or undefined when no entry can match, because no action, actor or id contains `q`. A term
 * of one or two characters has no trigram, so its search would read the whole feed; this check stops many such
 * searches.
 */
export function readSearch(q: string): Search | undefined {
  const term = q.toLowerCase();
  const isPossible = isPartOfId(term) || WORDS.some((word) => word.includes(term));
  if (!isPossible) return undefined;
  return { like: `%${term.slice(-LOOKED_UP).replaceAll(/[\\%_]/g, '\\$&')}%`, term };
}

/** Whether a UUID can contain the term: hexadecimal digits, with hyphens only in the places where a UUID has them. */
function isPartOfId(term: string): boolean {
  if (!/^[0-9a-f-]+$/.test(term)) return false;
  const shape = term.replaceAll(/[0-9a-f]/g, 'x');
  return ID_SHAPE.includes(shape);
}
