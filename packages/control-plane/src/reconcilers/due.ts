// Takes the operations that are due, one by one, and works on them side by side: an operation that hangs holds no other back.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/database.ts';
import { performExpiry } from '../operations/expiry.ts';
import { performClaimed } from '../operations/perform.ts';
import { ClaimLost } from '../operations/refusals.ts';
import { type Claimed, claimDue } from '../operations/store.ts';

/** Operations at work at once in this process, beyond those of requests: each may hold a call to a host. */
const WIDTH = 256;

export type DueRunner = {
  /** Takes everything that is due now. Throws when the database is away. */
  take(): Promise<void>;
  /** Waits for the end of the operations that were taken. */
  settled(): Promise<void>;
};

export function createDueRunner(app: App): DueRunner {
  const atWork = new Set<Promise<void>>();
  const take = async () => {
    while (atWork.size < WIDTH && !app.closing.aborted) {
      const connected = app.hosts.connectedIds();
      const claimed = connected.length === 0 ? undefined : await claimDue(app, connected);
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

/** Attempts a claimed operation once. A failure is logged, and the operation is due again. Never throws. */
export async function performDue(app: App, claimed: Claimed): Promise<void> {
  const { id, kind, machine_id, volume_id, snapshot_id } = claimed.operation;
  const subject = { operation_id: id, kind, machine_id, volume_id, snapshot_id };
  try {
    await (kind === 'expire' ? performExpiry(app, claimed) : performClaimed(app, claimed));
    // An expiry may only have looked whether it can act.
    if (kind !== 'expire') app.log.info(subject, 'the reconciler finished an operation');
  } catch (err) {
    if (err instanceof ClaimLost || isDatabaseAway(err)) app.log.debug({ err, ...subject }, 'an operation was left');
    else app.log.warn({ err, ...subject }, 'the reconciler could not do an operation yet');
  }
}
