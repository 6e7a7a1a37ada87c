// Creates one object for all requests with the same idempotency key. A request waits while an earlier one is still
// creating the object. If the earlier one fails, the waiting request creates the object.
import type { App } from '../app.ts';
import { waitForOperation } from '../operations/wait.ts';

/** The created object, or the object of an earlier request with the same key (`isReplay`). */
export type Created<Row> = { row: Row; isReplay: boolean };

/**
 * The result of an attempt to create an object. `underWay`: the id of the operation with which an earlier request
 * with the same key is still creating the object. undefined: a parallel request with the same key was faster, so look
 * for its object.
 */
export type Attempt<Row> = Created<Row> | { underWay: string } | undefined;

/**
 * Calls `attempt` until it returns an object. `attempt` must look for the key in the transaction that inserts the
 * object. It gets the time at which to stop waiting, in milliseconds of `performance.now()`. Throws the errors of
 * `attempt` and of `waitForOperation`.
 */
export async function createOnce<Row>(
  app: App,
  attempt: (deadline: number) => Promise<Attempt<Row>>,
): Promise<Created<Row>> {
  const deadline = performance.now() + app.config.timing.operationWaitMs;
  for (;;) {
    const result = await attempt(deadline);
    if (result === undefined) continue;
    if ('row' in result) return result;
    // If the earlier request fails, its key is free again, and the next turn of this loop creates the object.
    await waitForOperation(app, result.underWay, deadline);
  }
}
