// Makes calls one after the other, so that an error in one call prevents the later calls.

/** Calls `act` for one item after the other, and stops at the first error. */
export async function inTurn<T, R>(items: readonly T[], act: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const item of items) results.push(await act(item));
  return results;
}
