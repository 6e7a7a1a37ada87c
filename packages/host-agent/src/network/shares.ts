// Divides what all machines use together, so that none can take it all from its neighbours.

export class Shares {
  readonly #total: number;
  readonly #perOwner: number;
  readonly #taken = new Map<string, number>();
  #sum = 0;

  /** `total` for all together, of which an owner gets at most `perOwner`. */
  constructor(total: number, perOwner: number) {
    this.#total = total;
    this.#perOwner = perOwner;
  }

  /** Takes one for `owner`; false when it has its share, or nothing is left. */
  take(owner: string): boolean {
    const taken = this.#taken.get(owner) ?? 0;
    if (taken >= this.#perOwner || this.#sum >= this.#total) return false;
    this.#taken.set(owner, taken + 1);
    this.#sum++;
    return true;
  }

  /** Gives back one that `take` granted. */
  giveBack(owner: string): void {
    const taken = this.#taken.get(owner) ?? 0;
    if (taken === 0) throw new Error(`${owner} has nothing to give back`);
    this.#sum--;
    if (taken === 1) this.#taken.delete(owner);
    else this.#taken.set(owner, taken - 1);
  }
}
