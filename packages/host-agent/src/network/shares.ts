// Divides a shared resource among machines, so that no machine can take all of it.

export class Shares {
  readonly #total: number;
  readonly #perOwner: number;
  readonly #taken = new Map<string, number>();
  #sum = 0;

  /** Allows `total` units for all owners together, and at most `perOwner` for each of them. */
  constructor(total: number, perOwner: number) {
    this.#total = total;
    this.#perOwner = perOwner;
  }

  /** Takes one unit for `owner`. Returns false when the owner has its maximum, or no unit is left. */
  take(owner: string): boolean {
    const taken = this.#taken.get(owner) ?? 0;
    if (taken >= this.#perOwner || this.#sum >= this.#total) return false;
    this.#taken.set(owner, taken + 1);
    this.#sum++;
    return true;
  }

  /** Returns a unit that `take` granted. Throws when the owner has none. */
  giveBack(owner: string): void {
    const taken = this.#taken.get(owner) ?? 0;
    if (taken === 0) throw new Error(`${owner} has nothing to give back`);
    this.#sum--;
    if (taken === 1) this.#taken.delete(owner);
    else this.#taken.set(owner, taken - 1);
  }
}
