// Starts the parts of the control plane in the order of their dependencies, and stops them again. Both main.ts and the
// tests use this.
import { setTimeout as after } from 'node:timers/promises';
import { Registry } from 'prom-client';
import { keepMonths } from './activity/partitions.ts';
import { buildAdminServer, listenAdmin } from './admin/server.ts';
import type { App } from './app.ts';
import { CredentialWatch } from './auth/credential-watch.ts';
import type { Address, Config } from './config.ts';
import { asOwner, openDatabase, POOL_KEPT } from './db/database.ts';
import { migrate } from './db/migrate.ts';
import { openConnections } from './db/transaction.ts';
import { createHostClient, type HostClient } from './hosts/client.ts';
import { createHosts } from './hosts/hosts.ts';
import { listenToHost } from './hosts/listener.ts';
import { buildServer } from './http/server.ts';
import type { Log } from './log.ts';
import { createRequestCounter } from './metrics/requests.ts';
import { createMetricsServer } from './metrics/server.ts';
import { type Reconciler, startReconciler } from './reconcilers/loop.ts';

export type ControlPlane = {
  app: App;
  reconciler: Reconciler;
  /** The address on which the API listens. The port is the actual one, even if port 0 was requested. */
  address: Address;
  metricsAddress: Address;
  /**
   * Stops the control plane: refuses new requests, waits for unfinished requests (at most `shutdownMs`), then closes
   * everything.
   */
  close(): Promise<void>;
};

/**
 * How many connections the kernel keeps until this process accepts them. If more come, the kernel drops them, and each
 * client tries again only after a second or more. Node's default is 511, which a client that opens 1,000 streams
 * exceeds within a pause of some milliseconds. The kernel's own limit is net.core.somaxconn, usually 4,096.
 */
const BACKLOG = 4_096;

/** An address to listen on is used by another process. The message says which variable to change. */
export class AddressInUse extends Error {}

/**
 * Starts a replica: applies migrations, starts the servers, the event listener and the reconciler. `hostClient`
 * replaces the client of the host agent in tests. Throws the error that prevents the start, after stopping everything
 * that was started.
 */
export async function startControlPlane(config: Config, log: Log, hostClient?: HostClient): Promise<ControlPlane> {
  const db = openDatabase(config.databaseUrl, log);
  const closing = new AbortController();
  const local = hostClient ?? createHostClient(config.hostAgentSocket);
  let reconciler: Reconciler | undefined;
  const app: App = {
    config,
    log,
    db,
    hosts: createHosts(local),
    credentials: new CredentialWatch(db, log, closing.signal),
    reconcileSoon: () => reconciler?.signal(),
    closing: closing.signal,
  };
  // Do not use prom-client's global registry: several replicas in one process need separate metrics.
  const registry = new Registry();
  const server = await buildServer(app, createRequestCounter(registry));
  const admin = buildAdminServer(app);
  const metrics = createMetricsServer(app, registry);
  const listening = new AbortController();
  let events: Promise<void> = Promise.resolve();

  const close = async () => {
    closing.abort();
    const stopping = reconciler?.stop();
    const inFlight = Promise.all([server.close(), admin.close(), stopping]);
    const late = new AbortController();
    await Promise.race([
      inFlight,
      after(config.timing.shutdownMs, undefined, { signal: late.signal }).catch(() => undefined),
    ]);
    late.abort();
    server.server.closeAllConnections();
    metrics.closeAllConnections();
    metrics.close();
    listening.abort();
    // Abort calls to the host that are still unfinished. The claims of their operations expire, and the reconciler of
    // another replica (or of this one after its restart) continues them.
    local.close();
    await stopping;
    await events;
    await db.destroy();
  };

  try {
    const applied = await asOwner(config.databaseUrl, log, async (owner) => {
      const names = await migrate(owner);
      await keepMonths(owner, config.activityRetentionDays);
      return names;
    });
    await openConnections(db, POOL_KEPT);
    if (applied.length > 0) log.info({ applied }, 'the database was brought up to date');
    await listenAdmin(admin, config.adminSocket);
    await listenMetrics(metrics, config.metricsListen);
    events = listenToHost(app, listening.signal);
    reconciler = startReconciler(app);
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
