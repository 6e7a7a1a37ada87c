// Starts the VM of a machine in the fastest way possible: with a clone from the pool, with a clone that is made now,
// with a clone of a bare template on the machine's own disk, or by a cold boot. When anything goes wrong with a clone,
// it is thrown away and the next way is tried.
import { existsSync, renameSync, statSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineSpec, StartPath } from '@sandbar/contract/host-api.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import type PQueue from 'p-queue';
import type { Guest, GuestIdentity } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { AgentMetrics } from '../metrics/metrics.ts';
import type { Pool, ReadyClone } from '../pool/pool.ts';
import { resumeMachine } from '../snapshots/resume.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import { ensureOverlay, isOutOfRoom, virtualBytesOf } from '../storage/overlay.ts';
import type { BarePlace } from '../templates/clone.ts';
import { bareShapeOf, type Shape, templateDiskGb } from '../templates/shape.ts';
import type { Spares } from '../templates/spares.ts';
import type { Template } from '../templates/template-files.ts';
import type { Templates } from '../templates/templates.ts';
import { closeOnAbort } from '../vms/close-on-abort.ts';
import { firstSession } from '../vms/first-session.ts';
import { guestNetwork } from '../vms/guest-network.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { type BootLog, bootMachine, type StartedMachine, throwIfDestroyed } from './boot.ts';
import type { LeasedSpec, MachineImage } from './record.ts';

const GIB = 1024 ** 3;
/** A clone normally answers after 0.1 s. After this time a cold boot is the better choice. */
const CLONE_PATIENCE_MS = 5_000;

export type StartRequest = {
  spec: LeasedSpec;
  image: MachineImage;
  /** The layers between the image and the disk, bottom to top; absolute paths. */
  layerPaths: readonly string[];
  diskPath: string;
  runDir: string;
  /** The id of the memory snapshot that the machine must resume. Null: the machine boots. */
  resumes: string | null;
  identity: GuestIdentity;
  /** Whether the machine may get another address than that of `spec`. */
  isAddressOpen: boolean;
  abort: AbortSignal;
};

export type StarterOptions = {
  vms: VmHost;
  /** Undefined when templates are turned off: then every start is a cold boot. */
  templates: Templates | undefined;
  pool: Pool | undefined;
  spares: Spares | undefined;
  snapshots: SnapshotStore;
  /** Limits how many boots and restores run at once. */
  window: PQueue;
  patience: number;
  metrics: AgentMetrics;
  tracing: Tracing;
  log: BootLog;
};

/** A machine that was started, and how. */
type Started = StartedMachine & { path: StartPath };

export class Starter {
  readonly #options: StarterOptions;

  constructor(options: StarterOptions) {
    this.#options = options;
  }

  /**
   * Starts the VM. Resolves when the guest has acknowledged its identity. Throws `fleet_capacity` on a full disk,
   * `conflict` when `abort` fires or the memory snapshot cannot be resumed, and `host_unavailable` when the machine
   * does not start. No VM runs after an error.
   */
  start(request: StartRequest): Promise<Started> {
    const { metrics, tracing } = this.#options;
    const beganAt = performance.now();
    return tracing.span('machine.start', {}, async (span) => {
      try {
        const started = await this.#start(request);
        metrics.starts.observe({ path: started.path }, (performance.now() - beganAt) / 1000);
        span.set({ 'sandbar.start_path': started.path });
        return started;
      } catch (error) {
        // A conflict is a destroy meanwhile, or a snapshot that this host cannot resume.
        if (!(error instanceof ServiceError && error.code === 'conflict')) metrics.failedStarts.inc();
        throw error;
      }
    });
  }

  async #start(request: StartRequest): Promise<Started> {
    const { templates, pool } = this.#options;
    const { resumes } = request;
    if (resumes !== null) return { ...(await this.#inWindow(() => this.#resume(resumes, request))), path: 'resume' };
    const shape = shapeOf(request);
    const isFresh = !existsSync(request.diskPath);
    // An existing disk was changed by an earlier boot, so only the memory of a bare template fits it.
    if (templates && isFresh) {
      const pooled = await this.#takeFromPool(pool, shape, request);
      if (pooled) return { ...pooled, path: 'pool' };
      const cloned = await this.#inWindow(() => this.#cloneNow(templates, shape, request));
      if (cloned) return { ...cloned, path: 'clone' };
    }
    throwIfDestroyed(request.abort);
    const { isClone, ...started } = await this.#inWindow(() => this.#startOnDisk(request, shape));
    // A disk that has been snapshotted has layers that only this machine uses, so a template of it would rarely be
    // reused. A machine that starts again as a bare clone needs no template of its shape.
    if (isFresh || (shape.layerPaths.length === 0 && !isClone)) templates?.request(shape);
    // A machine that boots cold on a changed disk needs a bare template the next time. A new machine on an unchanged
    // image does not: the template that was requested above serves the next one.
    if (!isClone && (!isFresh || shape.layerPaths.length > 0)) templates?.request(bareShapeOf(shape));
    return { ...started, path: isClone ? 'bare' : 'cold' };
  }

  /** Runs `work` when a place in the window is free. */
  #inWindow<T>(work: () => Promise<T>): Promise<T> {
    const { window, tracing } = this.#options;
    return window.add(tracing.bind(work));
  }

  /** Returns undefined when no clone is ready, or when the clone failed. */
  async #takeFromPool(
    pool: Pool | undefined,
    shape: Shape,
    request: StartRequest,
  ): Promise<StartedMachine | undefined> {
    const { metrics, tracing } = this.#options;
    const ready = pool?.take(shape);
    if (pool) metrics.poolTakes.inc({ result: ready ? 'hit' : 'miss' });
    if (!ready) return undefined;
    return this.#tryClone(request, () => tracing.span('pool.claim', {}, () => this.#claimClone(ready, shape, request)));
  }

  async #resume(snapshotId: string, request: StartRequest): Promise<StartedMachine> {
    throwIfDestroyed(request.abort);
    try {
      return await resumeMachine(this.#options, {
        ...request,
        snapshotId,
        patienceMs: CLONE_PATIENCE_MS * this.#options.patience,
        identify: (guest) => this.#acknowledge(guest, { ...request, identity: { ...request.identity, wasHeld: true } }),
      });
    } catch (error) {
      throwIfDestroyed(request.abort);
      throw error;
    }
  }

  /** Starts the machine on its own disk: as a clone of a bare template, else by a cold boot. Makes a missing disk. */
  async #startOnDisk(request: StartRequest, shape: Shape): Promise<StartedMachine & { isClone: boolean }> {
    const { spec, image, layerPaths, diskPath, runDir, identity, abort } = request;
    const { vms, templates, patience, tracing, log } = this.#options;
    const base = { imagePath: image.rootfsPath, layerPaths };
    await ensureOverlay(diskPath, base, spec.rootfs_size_gb);
    const place = { diskPath, ...base, runDir, privateIp: spec.private_ip };
    const diskBytes = spec.rootfs_size_gb * GIB;
    const growTo = isSmaller(diskPath, diskBytes) ? diskBytes : undefined;
    const clone = await templates?.use(templates.keyOf(bareShapeOf(shape)), (template) =>
      this.#tryBareClone(templates, template, place, growTo, request),
    );
    if (clone) return { ...clone, isClone: true };
    const start = { kind: 'boot', kernelPath: image.kernelPath, initramfsPath: image.initramfsPath } as const;
    const plan = { ...place, vcpus: spec.vcpus, memoryMb: spec.memory_mb, start };
    return { ...(await bootMachine(vms, { plan, identity, growTo, patience, tracing, log, abort })), isClone: false };
  }

  /**
   * Starts a clone of a bare template on the machine's disk. If that fails, ends the clone, so that the disk can be
   * used again, and returns undefined. Throws when the clone cannot be ended.
   */
  async #tryBareClone(
    templates: Templates,
    template: Template,
    place: BarePlace,
    growTo: number | undefined,
    request: StartRequest,
  ): Promise<StartedMachine | undefined> {
    const { vms, patience, tracing, log } = this.#options;
    const { abort, identity } = request;
    let vm: Vm | undefined;
    let failure: unknown;
    try {
      vm = await tracing.span('vm.launch', {}, () => templates.cloneOnto(template, place));
      if (growTo !== undefined) await vm.growDisk(growTo);
      const patienceIsOver = AbortSignal.timeout(CLONE_PATIENCE_MS * patience);
      const guest = await this.#firstSession(vm, AbortSignal.any([abort, patienceIsOver])).catch((error: unknown) => {
        if (!abort.aborted) templates.judge(template, false);
        throw error;
      });
      // A later failure may be due to the machine's disk, so it does not count against the template.
      templates.judge(template, true);
      await this.#acknowledge(guest, request);
      return { vm, guest };
    } catch (error) {
      failure = error;
    }
    if (vm) await vms.discard(vm);
    throwIfDestroyed(abort);
    if (isOutOfRoom(failure)) throw failure;
    log.warn({ machine_id: identity.machineId, err: failure }, 'a bare clone was of no use');
    return undefined;
  }

  /**
   * Claims a clone of the pool: moves its files to the machine's folders and gives it the machine's identity. The
   * machine takes over the clone's address, and the names that the guest has already, unless clients know its
   * own address.
   */
  async #claimClone(ready: ReadyClone, shape: Shape, request: StartRequest): Promise<StartedMachine> {
    const { vms } = this.#options;
    const { vm, guest, diskPath, isClaimable } = ready;
    const unclaim = vms.claim(diskPath);
    const lease = request.isAddressOpen && ready.lease.claim() ? ready.lease : undefined;
    const hasNames = lease !== undefined && isClaimable;
    const identity = { ...request.identity, ...(lease ? guestNetwork(vms.network, lease.address) : {}) };
    try {
      vm.moveTo(request.runDir);
      if (!lease) {
        await vms.assignAddress(vm.vmId, request.spec.private_ip);
        ready.lease.release();
      }
      if (request.spec.rootfs_size_gb > shape.diskGb) await vm.growDisk(request.spec.rootfs_size_gb * GIB);
      // Run both in parallel, to save a round trip. The guest can acknowledge only after QEMU has resumed it.
      const going = Promise.all([vm.resume(), this.#acknowledge(guest, { ...request, identity }, hasNames)]);
      going.catch(() => {});
      // While the guest resumes, the agent has time for this.
      vm.setBackground(false);
      await going;
      // Move the disk here only after all steps succeeded, because the next start boots from any disk at this path,
      // even one of the wrong size.
      renameSync(diskPath, request.diskPath);
      return { vm, guest, lease, hasNames };
    } catch (error) {
      await vms.discard(vm).finally(() => rm(diskPath, { force: true }));
      ready.lease.release();
      throw error;
    } finally {
      unclaim();
    }
  }

  /**
   * Sends the identity and waits for the guest to acknowledge it. `isLeased`: the guest has all of it but the machine's
   * id. Gives up when the machine is destroyed, and after a short time, because the clone then hangs.
   */
  async #acknowledge(guest: Guest, { identity, spec, abort }: StartRequest, isLeased = false): Promise<void> {
    const giveUp = AbortSignal.any([abort, AbortSignal.timeout(CLONE_PATIENCE_MS * this.#options.patience)]);
    const diskBytes = spec.rootfs_size_gb * GIB;
    const send = isLeased
      ? () => guest.claim({ machineId: identity.machineId, diskBytes })
      : () => guest.setIdentity({ ...identity, diskBytes });
    await this.#options.tracing.span('guest.identity', {}, () => closeOnAbort(guest, giveUp, send));
  }

  #firstSession(vm: Vm, giveUp: AbortSignal): Promise<Guest> {
    return this.#options.tracing.span('guest.session', {}, () => firstSession(vm, giveUp));
  }

  async #cloneNow(templates: Templates, shape: Shape, request: StartRequest): Promise<StartedMachine | undefined> {
    if (request.abort.aborted) return undefined;
    return templates.use(templates.keyOf(shape), (template) =>
      this.#tryClone(request, () => this.#restore(templates, template, request)),
    );
  }

  async #restore(templates: Templates, template: Template, request: StartRequest): Promise<StartedMachine> {
    const { vms, patience, spares, tracing } = this.#options;
    const { runDir, spec } = request;
    const diskPath = `${request.diskPath}.clone`;
    const place = { diskPath, runDir, privateIp: spec.private_ip };
    const vm = await tracing.span(
      'vm.launch',
      {},
      async () => (await spares?.take(template, place)) ?? templates.clone(template, place),
    );
    try {
      if (spec.rootfs_size_gb > template.shape.diskGb) await vm.growDisk(spec.rootfs_size_gb * GIB);
      const patienceIsOver = AbortSignal.timeout(CLONE_PATIENCE_MS * patience);
      const guest = await this.#firstSession(vm, AbortSignal.any([request.abort, patienceIsOver]));
      await this.#acknowledge(guest, request);
      await rename(diskPath, request.diskPath);
      templates.judge(template, true);
      return { vm, guest };
    } catch (error) {
      if (!request.abort.aborted) templates.judge(template, false);
      await vms.discard(vm).finally(() => rm(diskPath, { force: true }));
      throw error;
    }
  }

  /**
   * Returns undefined when the clone failed, so that the caller tries the next way. The clone's disk is removed then.
   */
  async #tryClone(request: StartRequest, clone: () => Promise<StartedMachine>): Promise<StartedMachine | undefined> {
    try {
      return await clone();
    } catch (err) {
      await rm(request.diskPath, { force: true });
      throwIfDestroyed(request.abort);
      if (isOutOfRoom(err)) throw err;
      this.#options.log.warn({ machine_id: request.identity.machineId, err }, 'a clone was of no use');
      return undefined;
    }
  }
}

/** Whether the disk is smaller than `bytes`. False for an unreadable disk, because QEMU then reports the error. */
function isSmaller(diskPath: string, bytes: number): boolean {
  try {
    return virtualBytesOf(diskPath) < bytes;
  } catch {
    return false;
  }
}

/** Returns the shape of the template that a machine with this specification can be cloned from. */
export function shapeOf({ spec, image, layerPaths }: MachineBase): Shape {
  const { vcpus, memory_mb: memoryMb, rootfs_size_gb: sizeGb } = spec;
  const imageGb = Math.ceil(statSync(image.rootfsPath).size / GIB);
  // A disk with layers keeps its exact size, because it must not be smaller than its layers, and most machines made
  // from a snapshot have the snapshot's size.
  const diskGb = layerPaths.length === 0 ? templateDiskGb(sizeGb, imageGb) : sizeGb;
  return { image, layerPaths, vcpus, memoryMb, diskGb };
}

type MachineBase = {
  spec: Pick<MachineSpec, 'vcpus' | 'memory_mb' | 'rootfs_size_gb'>;
  image: MachineImage;
  layerPaths: readonly string[];
};
