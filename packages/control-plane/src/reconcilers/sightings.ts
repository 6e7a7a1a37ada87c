// Remembers from pass to pass which differences between a host and the database were seen. Rows and hosts change while
// the reconciler compares them, so a difference in a single pass may be temporary. Nothing is deleted or marked as lost
// until a later pass has seen the difference again.

export type Sightings = {
  /**
   * Records that this pass saw the difference `key`. Returns true if the previous pass saw it too and every pass of the
   * last `graceMs` milliseconds has seen it.
   */
  isOverdue(key: string, graceMs: number): boolean;
  /** Ends a pass of the reconciler. Differences that this pass did not record are forgotten. */
  endPass(): void;
};

/** Returns a Sightings that has recorded no difference yet. `now` returns the time in milliseconds. */
export function createSightings(now: () => number = () => performance.now()): Sightings {
  let earlier = new Map<string, number>();
  let current = new Map<string, number>();
  return {
    isOverdue: (key, graceMs) => {
      const firstSeen = earlier.get(key);
      current.set(key, firstSeen ?? now());
      return firstSeen !== undefined && now() - firstSeen >= graceMs;
    },
    endPass: () => {
      earlier = current;
      current = new Map();
    },
  };
}
