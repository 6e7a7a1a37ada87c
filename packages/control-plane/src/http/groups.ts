// A collection of items in named groups, such as connections by their account.

/**
 * Keeps ordered lists: the items of each group, and all items. A new item goes to the end of both, and `moveToEnd`
 * moves it there again. An item without a group is only in the list of all items.
 */
export class Groups<Item> {
  readonly #all = new Set<Item>();
  readonly #groups = new Map<string, Set<Item>>();

  add(name: string | undefined, item: Item): void {
    this.#all.add(item);
    if (name === undefined) return;
    const group = this.#groups.get(name);
    if (group) group.add(item);
    else this.#groups.set(name, new Set([item]));
  }

  delete(name: string | undefined, item: Item): void {
    this.#all.delete(item);
    if (name === undefined) return;
    const group = this.#groups.get(name);
    group?.delete(item);
    if (group?.size === 0) this.#groups.delete(name);
  }

  moveToEnd(name: string | undefined, item: Item): void {
    if (!this.#all.has(item)) return;
    this.delete(name, item);
    this.add(name, item);
  }

  /** The size of a group, or of all groups together when no name is given. */
  size(name?: string): number {
    return name === undefined ? this.#all.size : (this.#groups.get(name)?.size ?? 0);
  }

  /** The oldest item of a group, or of all groups when no name is given. */
  oldest(name?: string): Item | undefined {
    const [first] = name === undefined ? this.#all : (this.#groups.get(name) ?? []);
    return first;
  }

  find(name: string, matches: (item: Item) => boolean): Item | undefined {
    for (const item of this.#groups.get(name) ?? []) if (matches(item)) return item;
    return undefined;
  }
}
