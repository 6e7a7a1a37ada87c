// The host agent: one process for each host. It owns the VMs, their networks and their disks. The VMs keep running when
// the agent ends.
import { once } from 'node:events';
import { chmodSync, chownSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import { TRACING_SECRETS } from '@sandbar/contract/secrets.ts';
import { createLog, type Log } from '@sandbar/logging/log.ts';
import { startTracing } from '@sandbar/tracing/start.ts';
import { Registry } from 'prom-client';
import { HostAuditor } from './audit/host-auditor.ts';
import { BlobStore } from './blobs/blob-store.ts';
import { FileDigests } from './blobs/digests.ts';
import { ImageTransfer } from './blobs/image-transfer.ts';
import { removeUnused } from './blobs/remove-unused.ts';
import { SnapshotTransfer } from './blobs/snapshot-transfer.ts';
import { BOOT_PATIENCE_MS, type HostAgentConfig, readConfig } from './config.ts';
import { endRequests } from './end-requests.ts';
import { FleetMember } from './fleet/fleet-member.ts';
import { listenForFleet } from './fleet/listen-for-fleet.ts';
import { Gateway } from './gateway/gateway.ts';
import { loadHostState } from './host-state.ts';
import { buildServer } from './http/server.ts';
import { chooseAccelerator } from './hypervisor/accelerator.ts';
import { ACCELERATORS } from './hypervisor/accelerators.ts';
import { kvmAbilities } from './hypervisor/host-abilities.ts';
import { allowHugePages } from './hypervisor/huge-pages.ts';
import { processorSignature } from './hypervisor/processor-signature.ts';
import { QemuHypervisor } from './hypervisor/qemu.ts';
import { trimLogs } from './hypervisor/qemu-log.ts';
import { checkQemu, findExecutable, preferMicrovmBuild } from './hypervisor/qemu-version.ts';
import { findMachineImage } from './images/machine-image.ts';
import { imagesFolder, listImageFiles } from './images/store.ts';
import { watchImages } from './images/watch.ts';
import type { HostLimits } from './jail/cgroup-settings.ts';
import { closeInheritedDescriptors } from './jail/inherited-descriptors.ts';
import { NoJail } from './jail/no-jail.ts';
import { RootJail } from './jail/root-jail.ts';
import { makeStarter } from './machines/make-starter.ts';
import { assignedAddresses, MachineRegistry } from './machines/registry.ts';
import { shapeOf } from './machines/starter.ts';
import { createAgentMetrics } from './metrics/metrics.ts';
import { serveMetrics } from './metrics/metrics-server.ts';
import { addStateMetrics } from './metrics/state.ts';
import { MachineCopies } from './moves/machine-copies.ts';
import { VolumeCopies } from './moves/volume-copies.ts';
import { AddressCounter } from './network/address-counter.ts';
import { AddressLeases } from './network/address-leases.ts';
import { BridgeNetwork } from './network/bridge-network.ts';
import { HostNameServers } from './network/dns/name-servers.ts';
import type { HostNetwork } from './network/network.ts';
import { parseSubnet } from './network/subnet.ts';
import { UserNetwork } from './network/user-network.ts';
import { SnapshotStore } from './snapshots/snapshot-store.ts';
import { DataVolumes } from './storage/data-volumes.ts';
import { type DiskFacts, DiskReserve } from './storage/disk-reserve.ts';
import { Garbage } from './storage/garbage.ts';
import { LayerStore } from './storage/layers.ts';
import { VolumeStore } from './storage/volume-store.ts';
import { machineShapes } from './templates/machine-shapes.ts';
import { bareShapeOf } from './templates/shape.ts';
import { holdGuests } from './vms/hold-guests.ts';
import { VmHost } from './vms/vm-host.ts';

const VERSION = '0.1.0';
/** How often the size of QEMU's logs is checked. */
const LOG_TRIM_MS = 10_000;
/** How often the agent looks for unused layers. It also does so after every operation that may leave unused layers. */
const GARBAGE_MS = 5 * 60_000;
const MIB = 1024 * 1024;

/** Starts the agent and resolves when it has ended. An abort of `end` ends it, also while it starts. */
async function main(log: Log, end: AbortSignal): Promise<void> {
  const config = readConfig(process.env, process.getuid?.() ?? -1);
  closeInheritedDescriptors();
  // Forbid huge pages until the accelerator is known. The processes that start before run no guests and need none.
  allowHugePages(false);
  const paths = homePaths(config.home);
  mkdirSync(paths.run, { recursive: true });
  const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const tracing = await startTracing({ service: 'sandbar-host-agent', env: process.env, log });
  // The processes that the agent starts must not inherit them.
  for (const name of TRACING_SECRETS) delete process.env[name];
  const registry = new Registry();
  const metrics = createAgentMetrics(registry);
  const state = loadHostState(config);
  const member = FleetMember.open(config.home, state.hostId);
  const { diskReserveMb } = config;
  const reserve = new DiskReserve({
    dir: config.home,
    reserveBytes: diskReserveMb === undefined ? undefined : diskReserveMb * MIB,
    ballastPath: paths.ballast,
    log,
  });

  const qemuPath = findExecutable(config.qemuPath);
  const [guests, qemuVersion, images, base] = await Promise.all([
    Gateway.start({ home: config.home, dir: paths.runGateway, isRoot: config.isRoot, log }),
    checkQemu(qemuPath),
    watchImages(config.cacheDir, log),
    findMachineImage(config.cacheDir, 'base'),
  ]);
  const accelerator = await chooseAccelerator({
    choice: config.accelerator,
    stateDir: config.home,
    bootId,
    qemuVersion,
    probe: { qemuPath, ...base },
    signal: end,
    patience: config.bootPatienceMs / BOOT_PATIENCE_MS,
  });
  log.info({ qemu: qemuVersion, isolation: accelerator.isolation, because: accelerator.reason }, 'accelerator chosen');

  const mayPreferAnother = accelerator.isolation === 'kvm' && config.isRoot && !process.env.SANDBAR_QEMU;
  const machineQemuPath = mayPreferAnother ? preferMicrovmBuild(qemuPath) : qemuPath;

  await Promise.all(config.oldQemuPaths.map((path) => checkQemu(findExecutable(path))));

  const jail = config.isRoot
    ? await RootJail.open({
        home: config.home,
        programs: [machineQemuPath, ...config.oldQemuPaths],
        cgroups: { limits: hostLimits(config) },
      })
    : new NoJail(config.home);
  for (const lack of jail.lacks) log.warn({ lack }, 'isolation is not complete on this host');
  for (const dir of [paths.runVms, paths.runTemplates]) mkdirSync(dir, { recursive: true, mode: 0o700 });
  const { isolation } = accelerator;
  const kvmHost = { jail, qemuPath: machineQemuPath, runDir: join(paths.run, 'kvm-trial'), hasTaps: config.isRoot };
  const abilities = isolation === 'kvm' ? await kvmAbilities(config.kvm, kvmHost) : {};
  const hasHugePages = config.hugePages ?? ACCELERATORS[isolation].hasHugePages;
  allowHugePages(hasHugePages);
  log.info({ qemu: machineQemuPath, ...abilities, hasHugePages }, 'machines run with these settings');
  const hypervisor = new QemuHypervisor({
    qemuPath: machineQemuPath,
    oldQemuPaths: config.oldQemuPaths,
    isolation,
    abilities,
    jail,
    guests,
    runDir: paths.run,
    recordsDir: paths.runVms,
    patience: config.bootPatienceMs / BOOT_PATIENCE_MS,
  });
  const found = await hypervisor.adopt();
  const assigned = assignedAddresses(paths.machines, found);
  const network = await makeNetwork(config, state.subnet, assigned, log);
  const vms = new VmHost(hypervisor, network, log);
  await vms.adopt(found, assigned);
  const volumes = new VolumeStore(paths.volumes, log);
  const dataVolumes = new DataVolumes(paths.volumes, log);
  const layers = new LayerStore(paths.layers);
  const snapshots = new SnapshotStore(paths, layers, log, config.snapshotMemoryMb * MIB);
  const { cacheDir } = config;
  const volumeCopies = new VolumeCopies({
    ...{ volumesDir: paths.volumes, volumes, dataVolumes, layers, cacheDir, room: reserve },
  });
  const blobs = new BlobStore(paths.blobs, reserve);
  const files = { digests: new FileDigests(), imageFiles: () => listImageFiles(cacheDir) };
  const transfer = new SnapshotTransfer({ snapshots, layers, blobs, ...files });
  const imageTransfer = new ImageTransfer({ cacheDir, copiesDir: paths.imageCopies, blobs, ...files });
  const addresses = new AddressLeases(new AddressCounter(network.subnet, join(config.home, 'addresses.json')));
  const { starter, templates, pool, spares } = makeStarter(
    config,
    vms,
    { snapshots, reserve, addresses, metrics, tracing },
    () => garbage.collectSoon(),
    log,
  );
  const garbage = new Garbage({
    machinesDir: paths.machines,
    layers,
    snapshots,
    volumes,
    dropTemplates: (isNeeded) => templates?.dropUnneeded(isNeeded) ?? [],
    log,
  });
  const machines = new MachineRegistry(
    {
      vms,
      starter,
      addresses,
      bootId,
      machinesDir: paths.machines,
      runMachinesDir: paths.runMachines,
      volumes,
      dataVolumes,
      layers,
      snapshots,
      onLayersLeft: () => garbage.collectSoon(),
      outputLimitBytes: config.outputLimitBytes,
      keptOutput: config.keptOutput,
      room: reserve,
      metrics,
      tracing,
      log,
    },
    (stack) => imageTransfer.find(stack),
  );
  const machineCopies = new MachineCopies({
    ...{ machinesDir: paths.machines, machines, layers, snapshots, garbage, cacheDir, room: reserve, bootId },
    resumeChoices: () => hypervisor.resumeChoices(),
  });
  for (const vm of found.filter((one) => dirname(one.runDir) === paths.runTemplates)) await vms.discard(vm);
  templates?.open();
  await machines.load(found);
  // After the machines, because clones must not get addresses of machines.
  await pool.adopt(found.filter((vm) => pool.isOfPool(vm)));
  spares.open();
  dataVolumes.takeStraysBack();
  const stopHolding = holdGuests(vms, reserve, log);
  reserve.watch();
  const { vcpus, memory_mb, rootfs_size_gb } = MACHINE_DEFAULTS;
  if (templates) {
    const shape = shapeOf({ spec: { vcpus, memory_mb, rootfs_size_gb }, image: base, layerPaths: [] });
    pool.keep(shape);
    templates.pin(bareShapeOf(shape));
  }
  const audit = new HostAuditor(vms, machines, paths, { snapshots, garbage, dataVolumes });
  const collectGarbage = () => {
    removeUnused({
      ...{ machinesDir: paths.machines, blobs, images: imageTransfer, snapshots, volumes },
      ...{ room: reserve, log },
    });
    garbage.collect();
  };
  collectGarbage();
  const garbageRun = setInterval(collectGarbage, GARBAGE_MS);
  const logTrim = setInterval(() => trimLogs(paths.run, log), LOG_TRIM_MS);

  const { cpuModel } = config.kvm;
  const processor = processorSignature({ isolation, cpuModel, qemuPath: machineQemuPath, qemuVersion });
  const info = (): HostInfo => ({
    host_id: state.hostId,
    version: VERSION,
    boot_id: bootId,
    isolation: accelerator.isolation,
    network: network.kind,
    subnet: network.subnet,
    cpus: availableParallelism(),
    memory_mb: Math.floor(totalmem() / 1024 / 1024),
    disk: diskInMb(reserve.facts()),
    images: images.current(),
    lacks: [...jail.lacks],
    processor,
    pool: pool.status(),
    templates: machineShapes(templates?.shapes() ?? [], imagesFolder(config.cacheDir)),
  });
  addStateMetrics(registry, { vms, machines, pool, reserve });
  const server = buildServer(
    {
      info,
      bootId,
      machines,
      volumes,
      dataVolumes,
      volumeCopies,
      machineCopies,
      snapshots,
      garbage,
      transfers: { blobs, transfer, images: imageTransfer },
      room: reserve,
      audit,
      member,
      registry,
      tracing,
    },
    log,
  );
  rmSync(paths.hostAgentSocket, { force: true });
  await Promise.all([guests.ready(), network.ready()]);
  await server.listen({ path: paths.hostAgentSocket });
  if (config.serviceGid !== undefined) chownSync(paths.hostAgentSocket, 0, config.serviceGid);
  chmodSync(paths.hostAgentSocket, 0o660);
  const metricsServer = config.metricsListen && (await serveMetrics(config.metricsListen, registry));
  const fleet = await listenForFleet(config, member, server.server, log);
  if (!end.aborted) process.send?.({ type: 'ready' });
  log.info({ socket: paths.hostAgentSocket }, 'host agent ready');

  if (!end.aborted) await once(end, 'abort');
  log.info({ why: end.reason.message }, 'host agent ends; its machines continue to run');
  images.close();
  clearInterval(logTrim);
  clearInterval(garbageRun);
  stopHolding();
  await reserve.close();
  await server.close();
  await metricsServer?.close();
  await fleet?.close();
  await Promise.all([pool.close(), spares.close()]);
  await templates?.close();
  await machines.close();
  await Promise.all([guests.close(), network.close()]);
  if (vms.running().length === 0) await jail.remove?.();
  await tracing.close();
}

function diskInMb({ totalBytes, freeBytes, reserveBytes }: DiskFacts): HostInfo['disk'] {
  const inMb = (bytes: number) => Math.floor(bytes / MIB);
  return { total_mb: inMb(totalBytes), free_mb: inMb(freeBytes), reserve_mb: inMb(reserveBytes) };
}

/** Returns the limits that control groups enforce: memory for all VMs together, and disk throughput for each VM. */
function hostLimits({ machinesMemoryMb, diskRateMb, diskIops }: HostAgentConfig): HostLimits {
  const hasDiskLimit = diskRateMb !== undefined || diskIops !== undefined;
  return {
    memoryBytes: machinesMemoryMb * MIB,
    ...(hasDiskLimit ? { disk: { bytesPerSec: diskRateMb && diskRateMb * 1_000_000, requestsPerSec: diskIops } } : {}),
  };
}

async function makeNetwork(
  config: HostAgentConfig,
  cidr: string,
  assigned: ReadonlyMap<string, string>,
  log: Log,
): Promise<HostNetwork> {
  const subnet = parseSubnet(cidr);
  if (!config.isRoot) return new UserNetwork(subnet);
  const { networkAllow: allow, networkRateMbit: rateMbit, networkConnections: connections } = config;
  const host = new HostNameServers();
  return BridgeNetwork.create(config.home, subnet, () => config.nameServers ?? host.current(), {
    assigned,
    allow,
    rateMbit,
    connections,
    log,
  });
}

const log = createLog({ process: 'host-agent', level: process.env.SANDBAR_LOG_LEVEL ?? 'info' });
process.on('uncaughtException', (err) => {
  log.fatal({ err }, 'host agent failed');
  process.exit(1);
});
const end = endRequests();
try {
  await main(log, end);
  process.exit(0);
} catch (error) {
  // The agent was asked to end during the test boot, which may take long. A request at any other moment of the start is
  // seen when the start is complete.
  if (error === end.reason) process.exit(0);
  const reason = error instanceof Error ? error.message : String(error);
  // If there is a supervisor, send it the reason, which it shows to the operator. Otherwise only the log has the
  // reason.
  if (process.send) process.send({ type: 'failed', reason }, () => process.exit(1));
  log.fatal({ err: error }, reason);
  if (!process.send) process.exit(1);
}
