// Looks up the API keys of requests. When a client sends many requests at once, for example because it opens hundreds
// of streams, each would need a query for the same key, and the queries of other accounts would queue behind them. So
// while a query for a key is under way, the requests that arrive with this key share the next query.
//
// A request never gets the answer of a query that began before the request arrived: a key that was revoked before is
// refused. If the query under way fails, because the database does not answer, so do the requests that wait for it: a
// query of their own would only make them wait twice as long.
import type { Db } from '../db/database.ts';
import { findCaller, type KeyCaller } from './store.ts';

type Answer = Promise<KeyCaller | undefined>;
type Lookup = { answer: Answer; next: Answer | undefined };

export class KeyLookups {
  readonly #find: (key: string) => Answer;
  /** The query that is under way for each key. */
  readonly #underWay = new Map<string, Lookup>();

  constructor(db: Db, find = (key: string) => findCaller(db, key)) {
    this.#find = find;
  }

  /** Returns the key's account; undefined for an unknown or expired key. */
  find(key: string): Answer {
    const lookup = this.#underWay.get(key);
    if (!lookup) return this.#begin(key);
    lookup.next ??= lookup.answer.then(() => this.#begin(key));
    return lookup.next;
  }

  #begin(key: string): Answer {
    const answer = this.#find(key).finally(() => {
      if (this.#underWay.get(key) === lookup) this.#underWay.delete(key);
    });
    const lookup: Lookup = { answer, next: undefined };
    this.#underWay.set(key, lookup);
    return answer;
  }
}
