// The query string of the activity feed: the filters of the API. Unknown or invalid parameters are dropped, so an old
// link still opens the page.
import { CATEGORIES, type Category } from './activity-words.ts';

/** `from` and `to`: times as in RFC 3339. */
export type ActivitySearch = { category?: Category; q?: string; from?: string; to?: string };

const isTime = (value: unknown): value is string => typeof value === 'string' && !Number.isNaN(Date.parse(value));

export function activitySearch(search: Record<string, unknown>): ActivitySearch {
  const category = CATEGORIES.find((known) => known === search.category);
  // The router reads a text such as 2026 as a number.
  const q = typeof search.q === 'number' ? String(search.q) : search.q;
  return {
    ...(category ? { category } : {}),
    ...(typeof q === 'string' && q !== '' ? { q } : {}),
    ...(isTime(search.from) ? { from: search.from } : {}),
    ...(isTime(search.to) ? { to: search.to } : {}),
  };
}
