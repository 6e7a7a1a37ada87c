// Which machines may lose their VM to a kill, and which have. The clients declare machines, the killer reads the list.

export class Casualties {
  readonly #expendable = new Set<string>();
  readonly #kills = new Map<string, number>();

  /** The ids of the machines whose VM may be killed. */
  get expendable(): ReadonlySet<string> {
    return this.#expendable;
  }

  declare(id: string): void {
    this.#expendable.add(id);
  }

  withdraw(id: string): void {
    this.#expendable.delete(id);
  }

  /** To be called before the kill, so that no client sees its effect unprepared. */
  kill(id: string): void {
    this.#kills.set(id, this.killsOf(id) + 1);
  }

  killsOf(id: string): number {
    return this.#kills.get(id) ?? 0;
  }
}
