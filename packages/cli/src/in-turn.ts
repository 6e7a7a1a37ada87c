// Calls that must follow each other, so that an error of one prevents those after it.

/** Calls `act` for one item after the other, and stops at the first error. */
export async function inTurn<T, R>(items: readonly T[], act: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const item of items) results.push(await act(item));
  return results;
}
