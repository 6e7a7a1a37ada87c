// A host agent's machine registry in a temporary folder, with a fake hypervisor and no network. A test can start a new
// agent on the same folder, as after a crash.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostEvent } from '@sandbar/contract/host-api.ts';
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
import PQueue from 'p-queue';
import { Registry } from 'prom-client';
import { HostAuditor } from '../../src/audit/host-auditor.ts';
import { BlobStore } from '../../src/blobs/blob-store.ts';
import { FileDigests } from '../../src/blobs/digests.ts';
import { ImageTransfer } from '../../src/blobs/image-transfer.ts';
import { SnapshotTransfer } from '../../src/blobs/snapshot-transfer.ts';
import { assignedAddresses, MachineRegistry } from '../../src/machines/registry.ts';
import { Starter } from '../../src/machines/starter.ts';
import { createAgentMetrics } from '../../src/metrics/metrics.ts';
import { MachineCopies } from '../../src/moves/machine-copies.ts';
import { VolumeCopies } from '../../src/moves/volume-copies.ts';
import { AddressCounter } from '../../src/network/address-counter.ts';
import { AddressLeases } from '../../src/network/address-leases.ts';
import { parseSubnet } from '../../src/network/subnet.ts';
import { Pool } from '../../src/pool/pool.ts';
import { SnapshotStore } from '../../src/snapshots/snapshot-store.ts';
import { DataVolumes } from '../../src/storage/data-volumes.ts';
import { Garbage } from '../../src/storage/garbage.ts';
import { LayerStore } from '../../src/storage/layers.ts';
import { diskFull } from '../../src/storage/overlay.ts';
import { VolumeStore } from '../../src/storage/volume-store.ts';
import { Spares } from '../../src/templates/spares.ts';
import type { Template } from '../../src/templates/template-files.ts';
import { Templates } from '../../src/templates/templates.ts';
import { VmHost } from '../../src/vms/vm-host.ts';
import { FakeGuest } from './fake-guest.ts';
import { FakeHypervisor } from './fake-hypervisor.ts';
import { FakeNetwork } from './fake-network.ts';
import { FakeVm } from './fake-vm.ts';
import { Life, mortal } from './mortal.ts';

export const SPEC = {
  vcpus: 1,
  memory_mb: 128,
  rootfs_size_gb: 1,
  stack: 'base',
  private_ip: '10.200.0.9',
  hostname: 'test',
};

/** Limits on stored job output that tests do not reach. Tests of these limits pass smaller ones. */
const KEPT = { bytes: 2 ** 30, jobs: 1000 };

const silent = { info() {}, warn(_: object, _message: string) {}, error() {} };

/** The settings of the pool and the templates. */
export type Cloning = {
  /** How many spare QEMUs wait, see templates/spares.ts. */
  spares: number;
  size: number;
  total: number;
  baseline: number;
  window: number;
  memoryBytes: number;
  diskBytes: number;
  requestsForTemplate: number;
};
export const CLONING: Cloning = {
  spares: 0,
  size: 2,
  total: 4,
  baseline: 0,
  window: 1,
  memoryBytes: 2 ** 30,
  diskBytes: 2 ** 30,
  requestsForTemplate: 1,
};

export class FakeHost {
  readonly dir = mkdtempSync(join(tmpdir(), 'sandbar-host-'));
  readonly hypervisor = new FakeHypervisor();
  readonly network = new FakeNetwork(parseSubnet('10.200.0.0/16'), this.hypervisor);
  readonly paths = homePaths(this.dir);
  readonly events: HostEvent[] = [];
  /** Warnings of all agents that ran on this host. */
  readonly warnings: string[] = [];
  /** The settings of templates and the pool. If undefined, there are no templates, and every machine boots cold. */
  readonly cloning: Cloning | undefined;
  /** The host's disk. A test sets whether its free space is short. */
  readonly room = {
    isShort: false,
    refuseWhenShort: () => {
      if (this.room.isShort) throw diskFull(new Error('the disk is short'));
    },
    whenThereIsRoom: () => until('there is room', () => !this.room.isShort),
  };
  /** The kernel and the initramfs of all images. The paths need not exist, because no VM boots. */
  kernel = { kernelPath: '/kernel', initramfsPath: '/initramfs' };
  /** The metrics of the agents that ran on this host. */
  readonly metricsRegistry = new Registry();
  readonly metrics = createAgentMetrics(this.metricsRegistry);
  tracing = NO_TRACING;
  templates: Templates | undefined;
  pool: Pool | undefined;
  spares: Spares | undefined;
  vms!: VmHost;
  #life = new Life();
  registry!: MachineRegistry;
  volumes!: VolumeStore;
  dataVolumes!: DataVolumes;
  volumeCopies!: VolumeCopies;
  machineCopies!: MachineCopies;
  layers!: LayerStore;
  snapshots!: SnapshotStore;
  garbage!: Garbage;
  audit!: HostAuditor;
  transfers!: { blobs: BlobStore; transfer: SnapshotTransfer; images: ImageTransfer };
  /** A folder with images, which a test may write. Machines of the stack `base` need none. */
  readonly cacheDir = join(this.dir, 'cache');

  constructor(cloning?: Partial<Cloning>) {
    this.cloning = cloning && { ...CLONING, ...cloning };
    if (cloning) this.hypervisor.addressOf = (vmId) => this.network.attached.get(vmId);
  }

  /** Stops the agent as `kill -9` would. Its VMs continue to run. */
  kill(): void {
    this.#life.isOver = true;
    for (const vm of this.hypervisor.running.values()) vm.session?.close();
  }

  get isDead(): boolean {
    return this.#life.isOver;
  }

  /** Starts a new agent on the same folder, as after `kill -9`. */
  async start(bootId = 'boot-1', outputLimitBytes = 1024 * 1024, keptOutput = KEPT): Promise<MachineRegistry> {
    // Close the old agent's sessions, because the guest would refuse the new agent's while they are open.
    if (!this.cloning && !this.isDead) await this.registry?.close();
    this.kill();
    this.#life = new Life();
    const imagePath = join(this.dir, 'rootfs.img');
    writeFileSync(imagePath, Buffer.alloc(1024 * 1024));
    mkdirSync(join(this.dir, 'run'), { recursive: true });
    this.volumes = new VolumeStore(join(this.dir, 'volumes'), silent);
    this.layers = new LayerStore(this.paths.layers);
    this.snapshots = new SnapshotStore(this.paths, this.layers, silent);
    const blobs = new BlobStore(this.paths.blobs, this.room);
    const files = { digests: new FileDigests(), imageFiles: async () => new Map<string, string>() };
    const { snapshots, layers } = this;
    this.transfers = {
      blobs,
      transfer: new SnapshotTransfer({ snapshots, layers, blobs, ...files }),
      images: new ImageTransfer({ cacheDir: this.cacheDir, copiesDir: this.paths.imageCopies, blobs, ...files }),
    };
    const isPart = (value: unknown): value is object => value instanceof FakeVm || value instanceof FakeGuest;
    this.dataVolumes = mortal(new DataVolumes(join(this.dir, 'volumes'), silent), this.#life, isPart);
    this.volumeCopies = new VolumeCopies({
      ...{ volumesDir: join(this.dir, 'volumes'), volumes: this.volumes, dataVolumes: this.dataVolumes },
      ...{ layers: this.layers, cacheDir: join(this.dir, 'cache'), room: this.room },
    });
    const hypervisor = mortal(this.hypervisor, this.#life, isPart);
    const log = { ...silent, warn: (_: object, message: string) => void this.warnings.push(message) };
    const vms = new VmHost(hypervisor, mortal(this.network, this.#life, isPart), log);
    this.vms = vms;
    const window = new PQueue({ concurrency: 2 });
    const addresses = new AddressLeases(new AddressCounter(this.network.subnet, join(this.dir, 'addresses.json')));
    this.#makeCaches(vms, addresses, window, log);
    const { templates, pool, spares } = this;
    this.garbage = new Garbage({
      machinesDir: this.paths.machines,
      layers: this.layers,
      snapshots: this.snapshots,
      volumes: this.volumes,
      dropTemplates: (isNeeded) => templates?.dropUnneeded(isNeeded) ?? [],
      log,
    });
    const starter = new Starter({
      ...{ vms, templates, pool, spares, snapshots: this.snapshots, window, patience: 1 },
      ...{ metrics: this.metrics, tracing: this.tracing, log },
    });
    this.registry = new MachineRegistry(
      {
        vms,
        starter,
        addresses,
        bootId,
        machinesDir: join(this.dir, 'machines'),
        runMachinesDir: join(this.dir, 'run/machines'),
        volumes: this.volumes,
        dataVolumes: this.dataVolumes,
        layers: this.layers,
        snapshots: this.snapshots,
        onLayersLeft: () => this.garbage.collectSoon(),
        outputLimitBytes,
        keptOutput,
        room: this.room,
        metrics: this.metrics,
        tracing: this.tracing,
        log: silent,
      },
      async (stack) =>
        stack === 'base' ? { ...this.kernel, rootfsPath: imagePath } : this.transfers.images.find(stack),
    );
    this.machineCopies = new MachineCopies({
      ...{ machinesDir: this.paths.machines, machines: this.registry, layers: this.layers, bootId },
      ...{ cacheDir: join(this.dir, 'cache'), room: this.room, snapshots, garbage: this.garbage },
      resumeChoices: () => hypervisor.resumeChoices(),
    });
    this.audit = new HostAuditor(vms, this.registry, this.paths, this);
    this.registry.events.on('event', (event) => this.events.push(event));
    const found = await hypervisor.adopt();
    await vms.adopt(found, assignedAddresses(this.paths.machines, found));
    for (const vm of found) if (vm.runDir.startsWith(this.paths.runTemplates)) await vms.discard(vm);
    templates?.open();
    await this.registry.load(found);
    await pool?.adopt(found.filter((vm) => pool.isOfPool(vm)));
    spares?.open();
    this.dataVolumes.takeStraysBack();
    return this.registry;
  }

  /** Stops the agent in an orderly way. */
  async close(): Promise<void> {
    await this.pool?.close();
    await this.spares?.close();
    await this.templates?.close();
    await this.registry.close();
  }

  /** Returns the VMs, network attachments and files that clones, templates and machines still have on the host. */
  left(): { vms: string[]; attached: string[]; files: string[] } {
    const { pool, runPool, runTemplates, runMachines, templates } = this.paths;
    const entries = [pool, runPool, runTemplates, runMachines].flatMap((dir) =>
      entriesOf(dir).map((name) => join(dir, name)),
    );
    const unfinished = entriesOf(templates).filter((name) => name.startsWith('.'));
    return {
      vms: [...this.hypervisor.running.keys()],
      attached: [...this.network.attached.keys()],
      files: [...entries, ...unfinished],
    };
  }

  #makeCaches(vms: VmHost, addresses: AddressLeases, window: PQueue, log: typeof silent): void {
    if (!this.cloning) return;
    const { size, total, baseline, memoryBytes, diskBytes, requestsForTemplate } = this.cloning;
    const { templates: dir, runTemplates, pool: poolDir, runPool } = this.paths;
    const onReady = (template: Template) => {
      pool.fill();
      spares.stock(template);
    };
    const spares: Spares = new Spares({
      vms,
      dir: poolDir,
      runDir: runPool,
      count: this.cloning.spares,
      fillAfterMs: 0,
      isBusy: () => window.size > 0,
      use: (key, work) => templates.useAhead(key, work),
      log,
    });
    const templates = new Templates({
      vms,
      dir,
      runDir: runTemplates,
      memoryBytes,
      diskBytes,
      requestsForTemplate,
      patience: 1,
      settleMs: 0,
      room: this.room,
      metrics: this.metrics,
      log,
      onReady,
      onDropped: (template) => spares.drop(template),
      onMade: () => this.garbage.collectSoon(),
    });
    const pool = new Pool({
      vms,
      templates,
      dir: poolDir,
      runDir: runPool,
      addresses,
      limits: { size, total },
      baseline,
      window: this.cloning.window,
      patience: 1,
      fillAfterMs: 0,
      isBusy: () => window.size > 0,
      log,
    });
    Object.assign(this, { templates, pool, spares });
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Waits until `isTrue` holds; fails with `what` after 5 s. */
export async function until(what: string, isTrue: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!isTrue()) {
    if (Date.now() > deadline) throw new Error(`not in 5 s: ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function entriesOf(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir) : [];
}
