// Starts the parts of the control plane in the order of their dependencies, and stops them again. Both main.ts and the
// tests use this.
import { setTimeout as after } from 'node:timers/promises';
import { NO_TRACING, type Tracing } from '@sandbar/tracing/tracing.ts';
import { Registry } from 'prom-client';
import { keepMonths } from './activity/partitions.ts';
import { buildAdminServer, listenAdmin } from './admin/server.ts';
import type { App } from './app.ts';
import { CredentialWatch } from './auth/credential-watch.ts';
import { openObjectStore } from './blobs/object-store.ts';
import { sleep } from './concurrency.ts';
import type { Address, Config } from './config.ts';
import { asOwner, openDatabase, POOL_KEPT } from './db/database.ts';
import { MIGRATIONS, migrate } from './db/migrate.ts';
import { CHANNELS, notify, openNotifications } from './db/notifications.ts';
import { newerMigrations } from './db/oldest-reader.ts';
import { openConnections } from './db/transaction.ts';
import { createFleet, type Fleet } from './fleet/fleet.ts';
import { resealAuthorities } from './fleet/reseal.ts';
import { createHostClient } from './hosts/client.ts';
import { HostTable } from './hosts/host-table.ts';
import { createHosts, type HostClients } from './hosts/hosts.ts';
import { keepLeases, type LeaseKeeper } from './hosts/lease-keeper.ts';
import { watchLocalHost } from './hosts/local-host.ts';
import { createPresence } from './hosts/presence.ts';
import { takeReplicaId } from './hosts/replica-id.ts';
import { askAwayHosts } from './hosts/second-opinion.ts';
import { buildServer } from './http/server.ts';
import { Unfinished } from './http/unfinished.ts';
import type { Log } from './log.ts';
import { createMetrics } from './metrics/metrics.ts';
import { addDatabaseMetrics } from './metrics/process.ts';
import { createMetricsServer } from './metrics/server.ts';
import { type Reconciler, startReconciler } from './reconcilers/loop.ts';
import { startTask, type Task } from './reconcilers/task.ts';
import { Certificates } from './tls/certificates.ts';
import { type CertificateKeeper, keepCertificate } from './tls/keep.ts';

export type ControlPlane = {
  app: App;
  reconciler: Reconciler;
  /** The address on which the API listens. The port is the actual one, even if port 0 was requested. */
  address: Address;
  metricsAddress: Address;
  /**
   * Stops the control plane. `/readyz` says no from now on. After `drainMs` new requests are refused and long waits
   * end. When the unfinished requests have ended, after `shutdownMs` at most, everything is closed.
   */
  close(): Promise<void>;
};

/**
 * How many connections the kernel keeps until this process accepts them. If more come, the kernel drops them, and each
 * client tries again only after a second or more. Node's default is 511, which a client that opens 1,000 streams
 * exceeds within a pause of some milliseconds. The kernel's own limit is net.core.somaxconn, usually 4,096.
 */
const BACKLOG = 4_096;

/** How long the answers to requests may take that were cut off because their time was over, milliseconds. */
const CUT_MS = 1_000;

/** An address to listen on is used by another process. The message says which variable to change. */
export class AddressInUse extends Error {}

/**
 * Starts a replica: applies migrations, starts the servers, the listeners to hosts and the reconciler. `clients`
 * replaces the clients of host agents in tests. Throws the error that prevents the start, after stopping everything
 * that was started.
 */
export async function startControlPlane(
  config: Config,
  log: Log,
  clients: Partial<HostClients> = {},
  tracing: Tracing = NO_TRACING,
): Promise<ControlPlane> {
  // Do not use prom-client's global registry: several replicas in one process need separate metrics.
  const registry = new Registry();
  const db = openDatabase(config.databaseUrl, log, addDatabaseMetrics(registry));
  const [draining, closing, cutoff] = [new AbortController(), new AbortController(), new AbortController()];
  const { hostSeenMs, hostPollMs } = config.timing;
  const fleet = createFleet(config, db);
  const hosts = createHosts(db, { ...clientsOf(config, fleet, tracing), ...clients }, hostSeenMs);
  const objects = config.objectStore && (await openObjectStore(config.objectStore));
  const replicaId = await takeReplicaId(config.adminSocket, log);
  let reconciler: Reconciler | undefined;
  let leases: LeaseKeeper | undefined;
  const hostTasks: Task[] = [];
  const app: App = {
    config,
    log,
    metrics: createMetrics(registry),
    tracing,
    db,
    hosts,
    presence: createPresence(db, replicaId, hostSeenMs, () => void reloadHosts()),
    hostTable: new HostTable(db, config.timing.hostFactsMs),
    replicaId,
    fleet,
    objects,
    credentials: new CredentialWatch(db, log, closing.signal),
    // The reconciler's work does not belong to the trace of the request that wakes it.
    reconcileSoon: () => tracing.detach(() => reconciler?.signal()),
    compareSoon: (hostId) => {
      if (hosts.listenedIds().includes(hostId)) tracing.detach(() => reconciler?.suspect(hostId));
      else void notify(db, CHANNELS.suspicions, hostId).catch(() => undefined);
    },
    draining: draining.signal,
    closing: closing.signal,
    cutoff: cutoff.signal,
  };
  const reloadHosts = () =>
    hosts.reload().catch((err: unknown) => {
      log.debug({ err }, 'the list of hosts could not be read');
    });
  const [certificates, unfinished] = [new Certificates(), new Unfinished(app.draining)];
  const server = await buildServer(app, { certificates, unfinished });
  const admin = buildAdminServer(app);
  const metrics = createMetricsServer(app, registry);
  const notifications = openNotifications(config.databaseUrl, log);
  let localHost: Promise<void> = Promise.resolve();
  let certificate: CertificateKeeper | undefined;

  const close = async () => {
    draining.abort();
    if (server.server.listening) await sleep(config.timing.drainMs);
    closing.abort();
    // Other replicas take the hosts over while the requests here end.
    const givenBack = Promise.all([leases?.stop(), ...hostTasks.map((task) => task.stop()), notifications.close()]);
    const stopping = reconciler?.stop();
    await within(config.timing.shutdownMs, Promise.all([unfinished.idle(), stopping]));
    cutoff.abort();
    await within(CUT_MS, Promise.all([server.close(), admin.close(), stopping]));
    server.server.closeAllConnections();
    metrics.closeAllConnections();
    metrics.close();
    // Abort calls to hosts that are still unfinished. The claims of their operations expire, and the reconciler of
    // another replica (or of this one after its restart) continues them.
    hosts.close();
    await stopping;
    await Promise.all([localHost, givenBack]);
    await certificate?.stop();
    objects?.close();
    await db.destroy();
    await tracing.close();
  };

  try {
    const applied = await asOwner(config.databaseUrl, log, async (owner) => {
      const names = await migrate(owner);
      await keepMonths(owner, config.activityRetentionDays);
      const newer = await newerMigrations(owner, Object.keys(MIGRATIONS));
      if (newer.length > 0)
        log.warn({ newer }, 'the database was migrated by a newer version, on which this one works');
      return names;
    });
    await openConnections(db, POOL_KEPT);
    const resealed = config.oldSecret ? await resealAuthorities(db, config.secret, config.oldSecret) : 0;
    if (resealed > 0) log.info({ keys: resealed }, 'the keys of the fleet are encrypted under the new secret');
    if (applied.length > 0) log.info({ applied }, 'the database was brought up to date');
    if (config.tls)
      certificate = await keepCertificate(config.tls, certificates, { config, log, signal: closing.signal });
    await listenAdmin(admin, config.adminSocket);
    await listenMetrics(metrics, config.metricsListen);
    await hosts.reload();
    reconciler = startReconciler(app);
    const keeper = keepLeases(app, notifications);
    leases = keeper;
    notifications.subscribe(CHANNELS.hosts, () => void reloadHosts());
    notifications.subscribe(CHANNELS.suspicions, (hostId) => {
      // The database may have lost transactions when its connection broke.
      if (hostId === undefined) reconciler?.suspectAll();
      else if (hosts.listenedIds().includes(hostId)) reconciler?.suspect(hostId);
    });
    hostTasks.push(
      startTask(app, 'list of the hosts', hostPollMs, hosts.reload),
      startTask(app, 'hosts that another replica does not reach', hostPollMs, () => askAwayHosts(app)),
    );
    if (hosts.local) localHost = watchLocalHost(app, hosts.local, keeper.signal, closing.signal);
    await server.listen({ ...config.listen, backlog: BACKLOG }).catch((error: unknown) => {
      throw isInUse(error) ? inUse(config.listen, 'SANDBAR_LISTEN') : error;
    });
  } catch (error) {
    await close();
    throw error;
  }
  return {
    app,
    reconciler,
    address: addressOf(server.server.address(), config.listen),
    metricsAddress: addressOf(metrics.address(), config.metricsListen),
    close,
  };
}

function clientsOf(config: Config, fleet: Fleet, tracing: Tracing): HostClients {
  return {
    local: config.hasLocalHost ? createHostClient({ socketPath: config.hostAgentSocket }, tracing) : undefined,
    clientOf: (host) => createHostClient(fleet.targetOf(host), tracing),
  };
}

/** Waits for work, but no longer than `ms` milliseconds. */
async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const over = new AbortController();
  await Promise.race([work, after(ms, undefined, { signal: over.signal }).catch(() => undefined)]);
  over.abort();
}

async function listenMetrics(metrics: ReturnType<typeof createMetricsServer>, address: Address): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  metrics.once('error', (error) => reject(isInUse(error) ? inUse(address, 'SANDBAR_METRICS_LISTEN') : error));
  metrics.listen(address.port, address.host, resolve);
  await promise;
}

const isInUse = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';

const inUse = ({ host, port }: Address, variable: string): AddressInUse =>
  new AddressInUse(
    `The address ${host}:${port} is in use by another process. End that process, or set ${variable} to another HOST:PORT.`,
  );

function addressOf(bound: { port: number } | string | null, wanted: Address): Address {
  return { host: wanted.host, port: bound !== null && typeof bound === 'object' ? bound.port : wanted.port };
}
