// The search of the feed (`q`). It looks in one text that is made of an entry's action, actor and resource ids. The
// index that a migration makes and the query must use the same expression, so it is written here once; changing it
// needs a migration.

import { ACTIVITY_ACTIONS, ACTIVITY_ACTORS } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';

export const ACTIVITY_SEARCH_TEXT = sql.raw(`(
  action || ' ' || actor || ' ' || coalesce(machine_id, '') || ' ' ||
  coalesce(metadata ->> 'volume_id', metadata ->> 'snapshot_id', ''))`);

const WORDS = [...Object.keys(ACTIVITY_ACTIONS), ...ACTIVITY_ACTORS];
const ID_SHAPE = 'xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx';

/** A search term for the query: `like` finds candidates by the index, and `term` is the text that they must contain. */
export type Search = { like: string; term: string };

/**
 * How many characters of a term are looked up in the index: the last ones. The index is one of trigrams (parts of three
 * characters), and each more of them costs another list to read. The end of an id (UUID version 7) is its random part,
 * so it finds few candidates. Measured with 5 million entries on a busy machine: a whole machine id took 104 ms, its
 * end 9.
 */
const LOOKED_UP = 10;

/**
 * What to search for. Undefined when no entry can match, because `q` is part of no action, no actor and no id. Terms of
 * one or two characters have no trigram and would read the whole feed, so it matters to stop those that cannot match.
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
