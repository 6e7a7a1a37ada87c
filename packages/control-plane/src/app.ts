// The dependencies that every part of the control plane gets as an argument. There are no globals, so a test can run
// two replicas in one process and replace any dependency by a fake.
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import type { CredentialWatch } from './auth/credential-watch.ts';
import type { ObjectStore } from './blobs/object-store.ts';
import type { Config } from './config.ts';
import type { Db } from './db/database.ts';
import type { Fleet } from './fleet/fleet.ts';
import type { HostTable } from './hosts/host-table.ts';
import type { Hosts } from './hosts/hosts.ts';
import type { Presence } from './hosts/presence.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';

export type App = {
  config: Config;
  db: Db;
  hosts: Hosts;
  /** What this replica sees of the hosts that it listens to. */
  presence: Presence;
  /** The id under which this replica holds its leases. */
  replicaId: string;
  /** How the hosts that joined are reached. */
  fleet: Fleet;
  /** The object store for snapshots. Undefined: there is none, and every snapshot stays on its host. */
  objects: ObjectStore | undefined;
  /** What this replica knows about the rows of all hosts. */
  hostTable: HostTable;
  /** Ends open streams whose credential has ended. */
  credentials: CredentialWatch;
  log: Log;
  /** What this replica counts while it works. */
  metrics: Metrics;
  tracing: Tracing;
  /** Requests a pass of the reconciler. Returns at once. */
  reconcileSoon: () => void;
  /** Makes the replica that listens to a host compare it with its rows soon. Returns at once. */
  compareSoon: (hostId: string) => void;
  /** Aborted when a shutdown was asked for. `/readyz` then says no, and everything else goes on. */
  draining: AbortSignal;
  /** Aborted when the process has to stop. Long waits then end early, and new requests are refused. */
  closing: AbortSignal;
  /** Aborted when transfers that are still under way have had their time. */
  cutoff: AbortSignal;
};
