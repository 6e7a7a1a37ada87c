// Creates a machine at the request of an account. One transaction checks and admits the request, or finds the machine
// of an earlier request with the same idempotency key. Then the create operation starts the machine on its host.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { withHosts } from '../hosts/with-hosts.ts';
import { freeKeyOf, idempotencyKeyOf } from '../idempotency/keys.ts';
import { type Created, createOnce } from '../idempotency/once.ts';
import { movingVolumes } from '../moves/request.ts';
import { performForRequest } from '../operations/request.ts';
import { type Claimed, lockUnfinished } from '../operations/store.ts';
import { admitMachine } from './admit.ts';
import { identityOf, readCreate } from './source.ts';
import { type MachineView, selectMachineViews } from './store.ts';

/**
 * Creates a machine and waits until it runs. Returns the machine of an earlier request instead if that request had the
 * same idempotency key. Volumes on other hosts move to its host first. When the chosen host does not answer, and
 * nothing of the machine is bound to that host, another host is tried once.
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
  let failure: HostUnavailable | undefined;
  return createOnce(app, async (deadline) => {
    const request = { accountId, asked, idempotencyKey, avoid };
    const admitted = await app.tracing
      .span('machine.admit', {}, () =>
        movingVolumes(
          app,
          () => withHosts(app, (known) => inTransaction(app.db, (tx) => admitMachine(app, tx, request, known))),
          avoid,
        ),
      )
      .catch((error: unknown) => {
        // What refuses the second try may be the remains of the first one.
        throw failure ?? error;
      });
    if (admitted.kind === 'under way') return { underWay: admitted.operationId };
    if (admitted.kind === 'replay') return { row: admitted.machine, isReplay: true };
    const { claimed, machine, expiresAt } = admitted;
    let made: MachineRow | undefined;
    try {
      made = await performForRequest(app, claimed, machine, deadline);
    } catch (error) {
      if (failure || !(error instanceof HostUnavailable) || !(await mayTryElsewhere(app, machine, claimed)))
        throw error;
      failure = error;
      avoid.add(machine.host_id);
      return undefined;
    }
    app.metrics.creates.observe({ path: claimed.startPath ?? 'unknown' }, (performance.now() - beganAt) / 1000);
    const row = made ? { ...made, operation: null, expires_at: expiresAt } : await readCreated(app, machine.id);
    return { row, isReplay: false };
  });
}

/**
 * Whether a create that failed because its host does not answer may be tried on another host. Its machine must be
 * going to be removed already, and must not have disks that are on that host. Frees the idempotency key for the second
 * try.
 */
function mayTryElsewhere(app: App, machine: MachineRow, { operation }: Claimed): Promise<boolean> {
  const isBound = machine.snapshot_id !== null || machine.root_volume_id !== null || operation.args.volumes;
  const hasOther = app.hosts.reachableIds().some((id) => id !== machine.host_id);
  if (isBound || !hasOther) return Promise.resolve(false);
  return inTransaction(app.db, async (tx) => {
    const [row] = await lockUnfinished(tx, { machineId: machine.id });
    if (row && !row.undoing) return false;
    await freeKeyOf(tx, operation);
    return true;
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
