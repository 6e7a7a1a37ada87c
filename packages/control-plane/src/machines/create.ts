// Creates a machine at the request of an account. One transaction checks and admits the request, or finds the machine
// of an earlier request with the same idempotency key. Then the create operation starts the machine on its host.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { withHosts } from '../hosts/with-hosts.ts';
import { idempotencyKeyOf } from '../idempotency/keys.ts';
import { type Created, createOnce } from '../idempotency/once.ts';
import { movingVolumes } from '../moves/request.ts';
import { performForRequest } from '../operations/request.ts';
import { admitMachine } from './admit.ts';
import { identityOf, readCreate } from './source.ts';
import { type MachineView, selectMachineViews } from './store.ts';

/**
 * Creates a machine and waits until it runs. Returns the machine of an earlier request instead if that request had the
 * same idempotency key. Volumes on other hosts move to its host first.
 *
 * Throws `validation_error`, `forbidden`, `insufficient_balance`, `quota_exceeded`, `fleet_capacity`,
 * `host_unavailable`, `database_unavailable`, or the host's refusal. Throws `not_found` or `conflict` if the snapshot
 * or a volume cannot be used, and `conflict` if the machine was deleted before it ran. After an error nothing of the
 * machine remains: the reconciler removes the rest, and its volumes become available again.
 */
export async function createMachine(
  app: App,
  accountId: string,
  body: MachineCreate,
  key?: string,
): Promise<Created<MachineView>> {
  const beganAt = performance.now();
  const asked = readCreate(body);
  const idempotencyKey = idempotencyKeyOf(key, identityOf(asked));
  const avoid = new Set<string>();
  return createOnce(app, async (deadline) => {
    const request = { accountId, asked, idempotencyKey, avoid };
    const admitted = await app.tracing.span('machine.admit', {}, () =>
      movingVolumes(
        app,
        () => withHosts(app, (known) => inTransaction(app.db, (tx) => admitMachine(app, tx, request, known))),
        avoid,
      ),
    );
    if (admitted.kind === 'under way') return { underWay: admitted.operationId };
    if (admitted.kind === 'replay') return { row: admitted.machine, isReplay: true };
    const { claimed, machine, expiresAt } = admitted;
    const made = await performForRequest(app, claimed, machine, deadline);
    app.metrics.creates.observe({ path: claimed.startPath ?? 'unknown' }, (performance.now() - beganAt) / 1000);
    const row = made ? { ...made, operation: null, expires_at: expiresAt } : await readCreated(app, machine.id);
    return { row, isReplay: false };
  });
}

async function readCreated(app: App, id: string): Promise<MachineView> {
  const row = await selectMachineViews(app.db).where('id', '=', id).executeTakeFirst();
  if (row) return row;
  // A crash of PostgreSQL lost the unsynced commit that admitted the machine (admit.ts), or this process had no
  // connection to the database for so long that the reconciler took over the create and undid it.
  const detail = 'The database was not available during the create, and nothing of the machine is left. Retry.';
  throw new ServiceError('database_unavailable', detail, { retryAfterSec: 2 });
}
