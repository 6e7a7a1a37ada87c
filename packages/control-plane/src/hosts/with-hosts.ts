// Decides on a request with the table of hosts, and reads the rows again before a refusal that follows from the table.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import type { HostFacts } from './host-table.ts';

/** What a decision gets. `tried`: ids of hosts that have refused this request. */
export type KnownHosts = { hosts: readonly HostFacts[]; tried: ReadonlySet<string> };

/** The chosen host has refused the reservation. The transaction is rolled back, and another host is chosen. */
class HostIsFull extends Error {
  readonly hostId: string;
  constructor(hostId: string) {
    super(`Host ${hostId} has no room left.`);
    this.hostId = hostId;
  }
}

/** A refusal that follows from what the table says. The rows may say something else by now. */
class RefusedByTable extends Error {
  readonly refusal: ServiceError;
  constructor(refusal: ServiceError) {
    super(refusal.message, { cause: refusal });
    this.refusal = refusal;
  }
}

/** Marks a refusal that follows from the table: it is thrown to the client only if the rows confirm it. */
export const refusedByTable = (refusal: ServiceError): Error => new RefusedByTable(refusal);

/** Runs a check that reads the table, and marks its refusal as one that follows from the table. */
export function byTable<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw error instanceof ServiceError ? refusedByTable(error) : error;
  }
}

/** Returns a handler of the error with which the host's row refused a reservation. */
export const throwHostIsFull =
  (hostId: string) =>
  (error: unknown): never => {
    throw error instanceof ServiceError && error.code === 'fleet_capacity' ? new HostIsFull(hostId) : error;
  };

/**
 * Runs `decide`, usually a transaction, with what this replica knows about the hosts. Runs it again with other hosts
 * when the chosen host refused (`HostIsFull`), and once more with the rows as they are now before a refusal by the
 * table is thrown. Throws the errors of `decide`.
 */
export async function withHosts<T>(app: App, decide: (known: KnownHosts) => Promise<T>): Promise<T> {
  const table = app.hostTable;
  await table.read();
  const tried = new Set<string>();
  let isReadAgain = false;
  for (;;) {
    try {
      return await decide({ hosts: table.hosts, tried });
    } catch (error) {
      if (error instanceof HostIsFull) {
        tried.add(error.hostId);
        table.addRefusal(error.hostId);
      } else if (error instanceof RefusedByTable) {
        if (isReadAgain) throw error.refusal;
        isReadAgain = true;
        await table.readAgain();
        tried.clear();
      } else throw error;
    }
  }
}
