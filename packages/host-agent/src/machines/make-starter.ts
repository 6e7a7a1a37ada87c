// Makes the starter of machines and connects it with what makes starts fast: templates, the pool of clones, and spares.
import { homePaths } from '@sandbar/contract/home.ts';
import type { Log } from '@sandbar/logging/log.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import PQueue from 'p-queue';
import { BOOT_PATIENCE_MS, type HostAgentConfig } from '../config.ts';
import type { AgentMetrics } from '../metrics/metrics.ts';
import type { AddressLeases } from '../network/address-leases.ts';
import { Pool } from '../pool/pool.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { DiskReserve } from '../storage/disk-reserve.ts';
import { SETTLE_MS } from '../templates/make-template.ts';
import { Spares } from '../templates/spares.ts';
import { REQUESTS_FOR_TEMPLATE, Templates } from '../templates/templates.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { Starter } from './starter.ts';

/** Anonymous memory of a paused, emulated clone with 1 GiB, in MiB (bench/RESULTS.md). */
const POOLED_CLONE_MB = 48;
/** How many clones of the default shape always wait in the pool. */
const POOL_BASELINE = 2;
/**
 * Delay between the claim of a pooled clone and the refill of the pool, so that the refill does not take CPU time from
 * the new machine's create request and first commands (25 ms).
 */
const FILL_AFTER_MS = 250;
/**
 * Delay between a create and the start of a spare QEMU for the next create. It is longer than the pool's delay, because
 * a new machine that did not come from the pool takes longer to run its first command (0.2 s).
 */
const SPARE_AFTER_MS = 1000;
const MIB = 1024 * 1024;

/** What the starter shares with other parts of the agent. */
type Shared = {
  snapshots: SnapshotStore;
  reserve: DiskReserve;
  addresses: AddressLeases;
  metrics: AgentMetrics;
  tracing: Tracing;
};

/**
 * Returns the starter with the caches that it uses. `templates` is undefined when they are turned off. `onMade`: called when
 * a template was made or could not be made.
 */
export function makeStarter(
  config: HostAgentConfig,
  vms: VmHost,
  { snapshots, reserve, addresses, metrics, tracing }: Shared,
  onMade: () => void,
  log: Log,
): {
  templates: Templates | undefined;
  pool: Pool;
  spares: Spares;
  starter: Starter;
} {
  const paths = homePaths(config.home);
  const window = new PQueue({ concurrency: config.concurrentBoots });
  const patience = config.bootPatienceMs / BOOT_PATIENCE_MS;
  const templates = new Templates({
    vms,
    dir: paths.templates,
    runDir: paths.runTemplates,
    memoryBytes: config.templateMemoryMb * MIB,
    diskBytes: config.templateDiskMb * MIB,
    requestsForTemplate: REQUESTS_FOR_TEMPLATE,
    patience,
    settleMs: SETTLE_MS,
    room: reserve,
    metrics,
    log,
    onReady: (template) => {
      pool.fill();
      spares.stock(template);
    },
    onDropped: (template) => spares.drop(template),
    onMade,
  });
  const isBusy = () => window.size > 0 || reserve.isShort;
  const spares: Spares = new Spares({
    vms,
    dir: paths.pool,
    runDir: paths.runPool,
    count: config.templates ? config.concurrentBoots : 0,
    fillAfterMs: SPARE_AFTER_MS,
    isBusy,
    use: (key, work) => templates.useAhead(key, work),
    log,
  });
  const pool: Pool = new Pool({
    vms,
    templates,
    dir: paths.pool,
    runDir: paths.runPool,
    addresses,
    limits: {
      size: config.templates ? config.poolSize : 0,
      total: Math.floor(config.poolMemoryMb / POOLED_CLONE_MB),
    },
    baseline: POOL_BASELINE,
    window: config.concurrentBoots,
    patience,
    fillAfterMs: FILL_AFTER_MS,
    isBusy,
    log,
  });
  const used = config.templates ? templates : undefined;
  const starter = new Starter({
    ...{ vms, templates: used, pool, spares, snapshots, window, patience },
    ...{ metrics, tracing, log },
  });
  return { templates: used, pool, spares, starter };
}
