// Records which machines may lose their VM to a kill, how often each was killed, and how often the spend guard stopped
// it. The clients declare their machines, and the killer chooses from them.

export class Casualties {
  readonly #expendable = new Set<string>();
  readonly #kills = new Map<string, number>();
  readonly #guardStops = new Map<string, number>();

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

  /**
   * Counts a kill of a machine's VM. Call it before the kill, so that a client that notices the dead VM finds the kill
   * already counted.
   */
  kill(id: string): void {
    this.#kills.set(id, this.killsOf(id) + 1);
  }

  killsOf(id: string): number {
    return this.#kills.get(id) ?? 0;
  }

  /** Records how often the spend guard has stopped a machine, by the activity feed. */
  learnGuardStops(id: string, stops: number): void {
    this.#guardStops.set(id, stops);
  }

  guardStopsOf(id: string): number {
    return this.#guardStops.get(id) ?? 0;
  }

  /** How often the benchmark has killed the machine's VM, and how often the spend guard has stopped the machine. */
  endsOf(id: string): { kills: number; guardStops: number } {
    return { kills: this.killsOf(id), guardStops: this.guardStopsOf(id) };
  }
}
