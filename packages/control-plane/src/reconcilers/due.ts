// Claims the operations that are due, one by one, and performs them concurrently, so that an operation that hangs does
// not delay the others.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/failures.ts';
import { performExpiry } from '../operations/expiry.ts';
import { performClaimed } from '../operations/perform.ts';
import { ClaimLost } from '../operations/refusals.ts';
import { type Claimed, claimDue } from '../operations/store.ts';

/**
 * How many operations the reconciler of this process performs at once. Each may hold an open call to a host. Operations
 * that requests perform are not counted.
 */
const WIDTH = 256;

export type DueRunner = {
  /** Claims all operations that are due now and starts to perform them. Throws when the database does not answer. */
  take(): Promise<void>;
  /** Waits until all operations that were started have ended. */
  settled(): Promise<void>;
};

export function createDueRunner(app: App): DueRunner {
  const atWork = new Set<Promise<void>>();
  const take = async () => {
    while (atWork.size < WIDTH && !app.closing.aborted) {
      const hostIds = app.hosts.operableIds();
      const claimed = hostIds.length === 0 ? undefined : await claimDue(app, hostIds);
      if (!claimed) return;
      const work = performDue(app, claimed).finally(() => atWork.delete(work));
      atWork.add(work);
    }
  };
  return {
    take,
    settled: async () => {
      await Promise.all(atWork);
    },
  };
}

/**
 * Makes one attempt at a claimed operation. If it fails, logs the error; the operation is attempted again later. Never
 * throws.
 */
export async function performDue(app: App, claimed: Claimed): Promise<void> {
  const { id, kind, machine_id, volume_id, snapshot_id } = claimed.operation;
  const subject = { operation_id: id, kind, machine_id, volume_id, snapshot_id };
  try {
    await (kind === 'expire' ? performExpiry(app, claimed) : performClaimed(app, claimed));
    // Do not log an expiry here: it may only have been postponed because another operation is unfinished.
    if (kind !== 'expire') app.log.info(subject, 'the reconciler finished an operation');
  } catch (err) {
    if (err instanceof ClaimLost || isDatabaseAway(err)) app.log.debug({ err, ...subject }, 'an operation was left');
    else app.log.warn({ err, ...subject }, 'the reconciler could not do an operation yet');
  }
}
