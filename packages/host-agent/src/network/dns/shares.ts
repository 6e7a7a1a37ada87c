// Divides a number of places among machines. No machine gets more than its maximum. When all places are taken, a
// machine with fewer places gets a place of the machine with the most places, so even many machines together cannot
// shut out another machine.

/** One place that a machine has taken, such as a query under way. Calling `giveBack` again has no effect. */
export type Place = { giveBack(): void };

export class Shares {
  readonly #total: number;
  readonly #perOwner: number;
  /** The places that are taken, by owner, oldest first. A place is stored as the function that evicts its holder. */
  readonly #taken = new Map<string, Set<() => void>>();
  #sum = 0;

  /** There are `total` places for all owners together, and at most `perOwner` for each of them. */
  constructor(total: number, perOwner: number) {
    this.#total = total;
    this.#perOwner = perOwner;
  }

  /**
   * Takes a place for `owner`, or returns undefined when the owner has its maximum or its fair share. `evict` is called
   * when the place goes to another owner; the place is given back then.
   */
  take(owner: string, evict: () => void): Place | undefined {
    const own = this.#taken.get(owner)?.size ?? 0;
    if (own >= this.#perOwner || (this.#sum >= this.#total && !this.#evictFromRichest(own))) return undefined;
    const places = this.#taken.get(owner) ?? new Set();
    this.#taken.set(owner, places);
    const onEviction = () => evict();
    places.add(onEviction);
    this.#sum++;
    return { giveBack: () => this.#giveBack(owner, onEviction) };
  }

  /** Frees the oldest place of the owner with the most. Returns false when nobody has at least two more than `own`. */
  #evictFromRichest(own: number): boolean {
    let richest: [string, Set<() => void>] | undefined;
    for (const entry of this.#taken) if (entry[1].size > (richest?.[1].size ?? own + 1)) richest = entry;
    const [oldest] = richest?.[1] ?? [];
    if (!richest || !oldest) return false;
    this.#giveBack(richest[0], oldest);
    oldest();
    return true;
  }

  #giveBack(owner: string, place: () => void): void {
    const places = this.#taken.get(owner);
    if (!places?.delete(place)) return;
    this.#sum--;
    if (places.size === 0) this.#taken.delete(owner);
  }
}
