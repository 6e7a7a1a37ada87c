// The pool of clones that are ready for new machines. Each clone was restored from a template, warmed up and paused, so
// a create only has to claim it. The pool is a cache: losing clones costs time and nothing else.
//
//   template ──restore──▶ warm-up ──▶ address, names, randomness ──▶ paused, ready ──take──▶ used by a machine
//
// When a step fails, the clone is discarded.
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Guest, WarmUpProgram } from '../guest/guest.ts';
import { newVmId, type Vm } from '../hypervisor/driver.ts';
import type { AddressLeases, CloneLease } from '../network/address-leases.ts';
import type { Shape } from '../templates/shape.ts';
import type { Template } from '../templates/template-files.ts';
import type { Templates } from '../templates/templates.ts';
import { closeOnAbort } from '../vms/close-on-abort.ts';
import { firstSession } from '../vms/first-session.ts';
import { guestLease } from '../vms/guest-network.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { warmUpJobs, warmUpProgram } from '../vms/warm-up.ts';
import { MEMORY_OF_DEMAND_MS, type PoolLimits, planPool } from './plan.ts';

/** Warm-up jobs of a new clone. The third is as fast as any later one. */
const WARM_UP_JOBS = 3;
const SESSION_PATIENCE_MS = 10_000;
/**
 * Time limit for a clone of an earlier agent to answer; otherwise it is discarded. The agent is not ready until all
 * clones have answered, so the limit is short.
 */
const ADOPTION_PATIENCE_MS = 2_000;
/** How often the pool's size is adjusted to the past demand. */
const REVIEW_MS = 15_000;

export type PoolOptions = {
  vms: VmHost;
  templates: Templates;
  /** Folder of the clones' disks, on the same file system as the machines' disks. */
  dir: string;
  /** Folder of the clones' run directories. */
  runDir: string;
  addresses: AddressLeases;
  /** A `size` of 0 turns the pool off. */
  limits: PoolLimits;
  /** Clones of the default shape that are kept ready even without requests. */
  baseline: number;
  /** How many clones are prepared at the same time. */
  window: number;
  patience: number;
  /** Delay in ms between taking a clone and preparing new ones. */
  fillAfterMs: number;
  /** Whether a request waits for a machine. The pool then prepares no clones, to leave the CPU to that request. */
  isBusy: () => boolean;
  log: { info(details: object, message: string): void; warn(details: object, message: string): void };
};

/**
 * A paused VM with an open session to its guest agent, and with an address that network and guest have already.
 * `isClaimable`: the guest has the names of the lease too, so its identity needs nothing but the machine's id.
 */
export type ReadyClone = { vm: Vm; guest: Guest; isClaimable: boolean; diskPath: string; lease: CloneLease };

type Line = { shape: Shape; createdAt: number[]; baseline: number };

export class Pool {
  readonly #options: PoolOptions;
  readonly #lines = new Map<string, Line>();
  readonly #ready = new Map<string, ReadyClone[]>();
  readonly #making = new Map<string, number>();
  readonly #work = new Set<Promise<void>>();
  readonly #review: NodeJS.Timeout;
  #filling: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
    for (const dir of [options.dir, options.runDir]) mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#review = setInterval(() => {
      this.#trimUnasked();
      this.fill();
    }, REVIEW_MS).unref();
  }

  /** Keeps clones of this shape ready even without requests. */
  keep(shape: Shape): void {
    this.#lineOf(shape).baseline = this.#options.baseline;
    this.fill();
  }

  /**
   * Records that a machine of this shape is being created. Returns a ready clone for it, or undefined when there is
   * none.
   */
  take(shape: Shape): ReadyClone | undefined {
    const key = this.#options.templates.keyOf(shape);
    this.#lineOf(shape).createdAt.push(performance.now());
    const [clone, ...left] = this.#readyOf(key);
    if (clone) this.#ready.set(key, left);
    this.#fillSoon();
    return clone;
  }

  /** Returns the number of ready clones and the number there should be. */
  status(): { ready: number; target: number } {
    const sum = (numbers: Iterable<number>) => [...numbers].reduce((total, count) => total + count, 0);
    return {
      ready: sum([...this.#ready.values()].map((clones) => clones.length)),
      target: sum(this.#plan().values()),
    };
  }

  /**
   * Takes over the clones of an earlier agent and discards unusable ones. `vms`: the VMs in the pool's run directories.
   */
  async adopt(vms: readonly Vm[]): Promise<void> {
    const keys = this.#options.limits.size > 0 ? this.#options.templates.keysOnDisk() : new Set<string>();
    await Promise.all(vms.map((vm) => this.#adoptOne(vm, keys)));
    this.#removeLeftFiles();
  }

  isOfPool(vm: Vm): boolean {
    return dirname(vm.runDir) === this.#options.runDir;
  }

  /** Starts missing clones and discards surplus ones. */
  fill(): void {
    if (this.#isClosed) return;
    const { templates } = this.#options;
    const plan = this.#plan();
    for (const [key, target] of plan) this.#trim(key, this.#readyOf(key), target);
    for (const [key, target] of plan) {
      const line = this.#lines.get(key);
      // Only the default shape requests its template here. For other shapes, the machine that found no template
      // requests it. Requesting all templates here could exceed the space for templates, and they would evict each
      // other endlessly.
      if (line && line.baseline > 0 && target > 0) templates.pin(line.shape);
      while (templates.has(key) && this.#mayMake() && this.#readyOf(key).length + this.#makingOf(key) < target)
        this.#track(this.#make(key));
    }
  }

  /** Stops the pool and ends all its clones. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#review);
    clearTimeout(this.#filling);
    await Promise.all(this.#work);
    for (const [key, clones] of this.#ready) this.#trim(key, clones, 0);
    await Promise.all(this.#work);
  }

  /**
   * Fills the pool after a delay, because preparing a clone would compete for CPU time with the first commands of the
   * machine just created.
   */
  #fillSoon(): void {
    if (this.#isClosed) return;
    this.#filling ??= setTimeout(() => {
      this.#filling = undefined;
      // While a request waits for a machine, `fill` would start nothing, and the next review may be far away.
      if (this.#options.isBusy()) this.#fillSoon();
      else this.fill();
    }, this.#options.fillAfterMs);
  }

  #trim(key: string, clones: readonly ReadyClone[], target: number): void {
    if (clones.length <= target) return;
    this.#ready.set(key, clones.slice(0, target));
    for (const clone of clones.slice(target)) this.#track(this.#discardReady(clone));
  }

  /** Discards clones of an earlier agent if nobody has requested their shape by the time of this review. */
  #trimUnasked(): void {
    for (const [key, clones] of this.#ready) if (!this.#lines.has(key)) this.#trim(key, clones, 0);
  }

  #mayMake(): boolean {
    const making = [...this.#making.values()].reduce((sum, count) => sum + count, 0);
    return making < this.#options.window && !this.#options.isBusy();
  }

  async #make(key: string): Promise<void> {
    const { vms, templates, log } = this.#options;
    const name = newVmId();
    const unclaim = vms.claim(this.#diskOf(name));
    this.#making.set(key, this.#makingOf(key) + 1);
    let clone: ReadyClone | undefined;
    try {
      clone = await templates.use(key, (template) => this.#restore(template, name));
      if (clone) this.#shelve(key, clone);
    } catch (err) {
      log.warn({ template: key, err }, 'a clone could not be made ready');
    } finally {
      this.#making.set(key, this.#makingOf(key) - 1);
      unclaim();
    }
    // After a failure, the next review tries again. Retrying at once could fail in an endless loop.
    if (clone) this.fill();
  }

  async #restore(template: Template, name: string): Promise<ReadyClone> {
    const { templates, runDir } = this.#options;
    const diskPath = this.#diskOf(name);
    const vm = await templates.clone(template, { diskPath, runDir: join(runDir, name) });
    const program = warmUpProgram(template.shape);
    let lease: CloneLease | undefined;
    try {
      vm.setBackground(true);
      lease = await this.#leaseTo(vm);
      const made = this.#makeReady(vm, lease, { patienceMs: SESSION_PATIENCE_MS, program, rounds: WARM_UP_JOBS });
      // Only the guest's faults count against the template. A host without a free address is not one of them.
      const ready = await made.catch((error: unknown) => {
        templates.judge(template, false);
        throw error;
      });
      templates.judge(template, true);
      return { vm, ...ready, diskPath, lease };
    } catch (error) {
      await this.#discard(vm, diskPath).finally(() => lease?.release());
      throw error;
    }
  }

  async #adoptOne(vm: Vm, keys: ReadonlySet<string>): Promise<void> {
    const diskPath = this.#diskOf(basename(vm.runDir));
    const key = vm.templateKey;
    let lease: CloneLease | undefined;
    try {
      // A clone that was not paused had not finished its warm-up.
      if (key === undefined || !keys.has(key) || !(await vm.isPaused())) throw new Error('not ready');
      // The earlier agent's lease is forgotten, because no record has it.
      lease = await this.#leaseTo(vm);
      await vm.resume();
      // Tests that the guest still answers. A guest that was paused in the middle of an answer may not answer; its
      // clone is then discarded. The warm-up runs the guest agent's own program, which is safe on every disk.
      const once = { patienceMs: ADOPTION_PATIENCE_MS, program: 'agent', rounds: 1 } as const;
      this.#shelve(key, { vm, ...(await this.#makeReady(vm, lease, once)), diskPath, lease });
    } catch {
      await this.#discard(vm, diskPath).finally(() => lease?.release());
    }
  }

  /** Leases an address to a clone, and lets the clone's NIC use it. */
  async #leaseTo(vm: Vm): Promise<CloneLease> {
    const { vms, addresses } = this.#options;
    const lease = addresses.leaseToClone();
    try {
      await vms.assignAddress(vm.vmId, lease.address);
      return lease;
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  /**
   * Opens a session, runs the warm-up jobs, gives the guest its lease and randomness, and pauses the clone. Throws when
   * one of these steps fails, or when they take longer than `patienceMs` together.
   */
  async #makeReady(
    vm: Vm,
    lease: CloneLease,
    { patienceMs, program, rounds }: { patienceMs: number; program: WarmUpProgram; rounds: number },
  ): Promise<Pick<ReadyClone, 'guest' | 'isClaimable'>> {
    const giveUp = AbortSignal.timeout(patienceMs * this.#options.patience);
    const guest = await firstSession(vm, giveUp);
    await warmUpJobs(guest, program, rounds, giveUp);
    const leased = guestLease(this.#options.vms.network, lease);
    const isClaimable = await closeOnAbort(guest, giveUp, () => guest.lease(leased));
    await vm.pause();
    return { guest, isClaimable };
  }

  #shelve(key: string, clone: ReadyClone): void {
    this.#ready.set(key, [...this.#readyOf(key), clone]);
    const drop = () => {
      const left = this.#readyOf(key).filter((other) => other !== clone);
      if (left.length === this.#readyOf(key).length) return;
      this.#ready.set(key, left);
      this.#track(this.#discardReady(clone));
    };
    void clone.vm.exited.then(drop);
    void clone.guest.closed.then(drop);
  }

  async #discardReady({ vm, diskPath, lease }: ReadyClone): Promise<void> {
    await this.#discard(vm, diskPath).finally(() => lease.release());
  }

  async #discard(vm: Vm, diskPath: string): Promise<void> {
    const { vms } = this.#options;
    const unclaim = vms.claim(diskPath);
    try {
      await vms.discard(vm);
    } finally {
      rmSync(diskPath, { force: true });
      unclaim();
    }
  }

  /** Removes disks and run directories that belong to no clone. */
  #removeLeftFiles(): void {
    const names = new Set([...this.#ready.values()].flat().map(({ vm }) => basename(vm.runDir)));
    for (const dir of [this.#options.dir, this.#options.runDir]) {
      for (const entry of readdirSync(dir))
        if (!names.has(entry.split('.')[0] ?? '')) rmSync(join(dir, entry), { recursive: true, force: true });
    }
  }

  #plan(): Map<string, number> {
    const now = performance.now();
    for (const [key, line] of this.#lines) {
      line.createdAt = line.createdAt.filter((at) => now - at <= MEMORY_OF_DEMAND_MS);
      const isIdle = line.createdAt.length === 0 && line.baseline === 0;
      if (isIdle && this.#readyOf(key).length === 0 && this.#makingOf(key) === 0) this.#lines.delete(key);
    }
    const demands = [...this.#lines].map(([key, { createdAt, baseline }]) => ({ key, createdAt, baseline }));
    return planPool(demands, now, this.#options.limits);
  }

  #lineOf(shape: Shape): Line {
    const key = this.#options.templates.keyOf(shape);
    const line = this.#lines.get(key) ?? { shape, createdAt: [], baseline: 0 };
    this.#lines.set(key, line);
    return line;
  }

  #readyOf(key: string): ReadyClone[] {
    return this.#ready.get(key) ?? [];
  }

  #makingOf(key: string): number {
    return this.#making.get(key) ?? 0;
  }

  #diskOf(name: string): string {
    return join(this.#options.dir, `${name}.qcow2`);
  }

  #track(work: Promise<void>): void {
    const tracked = work
      .catch((err) => this.#options.log.warn({ err }, 'work on the pool failed'))
      .finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }
}
