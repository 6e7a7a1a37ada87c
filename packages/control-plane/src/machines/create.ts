// Creates a machine at the request of an account. One transaction checks and admits the request, or finds the machine
// of an earlier request with the same idempotency key. Then the create operation starts the machine on its host.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { performForRequest } from '../operations/request.ts';
import { waitForOperation } from '../operations/wait.ts';
import { type AdmissionRequest, type Admitted, admitMachine, HostIsFull } from './admit.ts';
import { fingerprintOf, identityOf } from './idempotency.ts';
import { readCreate } from './source.ts';
import { type MachineView, selectMachineViews } from './store.ts';

export type Created = { row: MachineView; isReplay: boolean };

/**
 * Creates a machine and waits until it runs. Returns the machine of an earlier request instead if that request had the
 * same idempotency key.
 *
 * Throws `validation_error`, `forbidden`, `insufficient_balance`, `quota_exceeded`, `fleet_capacity`,
 * `host_unavailable`, `database_unavailable`, or the host's refusal. Throws `not_found` or `conflict` if the snapshot
 * or root volume cannot be used, and `conflict` if the machine was deleted before it ran. After an error nothing of the
 * machine remains: the reconciler removes the rest, and a root volume becomes available again.
 */
export async function createMachine(app: App, accountId: string, body: MachineCreate, key?: string): Promise<Created> {
  const asked = readCreate(body);
  const idempotencyKey = key === undefined ? undefined : { key, fingerprint: fingerprintOf(identityOf(asked)) };
  const deadline = performance.now() + app.config.timing.operationWaitMs;
  for (;;) {
    const admitted = await admitToSomeHost(app, { accountId, asked, idempotencyKey, triedHosts: new Set() });
    if (admitted.kind === 'replay') return { row: admitted.machine, isReplay: true };
    if (admitted.kind === 'new') {
      const { claimed, machine, expiresAt } = admitted;
      const made = await performForRequest(app, claimed, machine, deadline);
      const row = made ? { ...made, operation: null, expires_at: expiresAt } : await readCreated(app, machine.id);
      return { row, isReplay: false };
    }
    // Another request with this key is still creating the machine, so wait for it. If that request fails, the next turn
    // of this loop creates the machine.
    await waitForOperation(app, admitted.operationId, deadline);
  }
}

/**
 * Tries the hosts that seem to have room, best host first. A parallel request may take the room before this request has
 * locked the host; then this request tries the next host.
 */
async function admitToSomeHost(app: App, request: AdmissionRequest): Promise<Admitted> {
  for (;;) {
    try {
      return await inTransaction(app.db, (tx) => admitMachine(app, tx, request));
    } catch (error) {
      if (!(error instanceof HostIsFull)) throw error;
      request.triedHosts.add(error.hostId);
    }
  }
}

async function readCreated(app: App, id: string): Promise<MachineView> {
  const row = await selectMachineViews(app.db).where('id', '=', id).executeTakeFirst();
  if (row) return row;
  // A crash of PostgreSQL lost the unsynced commit that admitted the machine (admit.ts), or this process had no
  // connection to the database for so long that the reconciler took over the create and undid it.
  const detail = 'The database was not available during the create, and nothing of the machine is left. Retry.';
  throw new ServiceError('database_unavailable', detail, { retryAfterSec: 2 });
}
