// What should not be and yet was seen, remembered from pass to pass: nothing is removed or given up on the strength of
// one look, since rows and hosts move while they are compared.

export type Sightings = {
  /**
   * Records that it is there in this pass. True when an earlier pass saw it too and `graceMs` have gone by since it was
   * first seen without a pass that did not see it.
   */
  isOverdue(key: string, graceMs: number): boolean;
  /** Ends a pass: what it did not see is forgotten. */
  endPass(): void;
};

/** Makes an empty memory; `now` counts milliseconds. */
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
