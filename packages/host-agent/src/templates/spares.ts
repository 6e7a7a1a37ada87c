// Starts spares: QEMUs that wait for a template's state before any create needs them. Starting QEMU in its jail takes a
// third of the time of a clone, so a create that finds no clone in the pool takes a spare. A spare has a tap, a uid and
// a disk, but no address, and its guest has never run. Spares are a cache: losing one costs time and nothing else.
//
//   started ──take──▶ address, machine's folder ──▶ state loaded, guest runs
//      └──────── the template or the QEMU is gone, or the agent ends ──▶ discarded
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { newVmId, type Vm } from '../hypervisor/driver.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { type ClonePlace, launchClone } from './clone.ts';
import type { Template } from './template-files.ts';

export type SparesOptions = {
  vms: VmHost;
  /** Folders for the spares' disks and run directories. They are on the same file systems as those of machines. */
  dir: string;
  runDir: string;
  /** How many spares wait, for all templates together; 0 turns them off. */
  count: number;
  /** Delay in ms between a create and the start of the next spare, which would take CPU time from the new machine. */
  fillAfterMs: number;
  /** Whether a request waits for a machine. No spare is started meanwhile. */
  isBusy: () => boolean;
  /** Calls `work` with the template while it is loaded, and does nothing otherwise. */
  use: (key: string, work: (template: Template) => Promise<void>) => Promise<unknown>;
  log: { warn(details: object, message: string): void };
};

type Spare = { template: Template; vm: Vm; diskPath: string };

export class Spares {
  readonly #options: SparesOptions;
  /** Oldest first. */
  #waiting: Spare[] = [];
  /** How many spares are being started. */
  #starting = 0;
  /** Keys of the templates that get a new spare, in this order. */
  #due: string[] = [];
  #timer: NodeJS.Timeout | undefined;
  #isOpen = false;
  readonly #work = new Set<Promise<void>>();

  constructor(options: SparesOptions) {
    this.#options = options;
  }

  /** From now on, spares are started. Call it after the files that an earlier agent left in the folders are removed. */
  open(): void {
    this.#isOpen = true;
    this.#fillSoon();
  }

  /**
   * Starts spares for a new template, until there are as many as allowed. Discards no other spares. Does nothing for a
   * bare template, because QEMU needs the machine's disk when it starts.
   */
  stock({ key, shape }: Template): void {
    if (shape.isBare) return;
    while (this.#present + this.#due.length < this.#options.count) this.#due.push(key);
    this.#fillSoon();
  }

  /**
   * Turns a spare of this template into a clone at `place`. The clone gets its address before its guest runs. Returns
   * undefined when the template has no spare, or when the spare fails; a failed spare is discarded. A new spare is
   * started later, whatever the result.
   */
  async take(template: Template, { diskPath, runDir, privateIp }: Required<ClonePlace>): Promise<Vm | undefined> {
    const { vms, count, log } = this.#options;
    const spare = this.#waiting.find((one) => one.template === template);
    if (spare) this.#forget(spare);
    if (this.#due.length < count) this.#due.push(template.key);
    this.#fillSoon();
    if (!spare) return undefined;
    const { vm } = spare;
    const unclaim = vms.claim(spare.diskPath);
    try {
      await vms.assignAddress(vm.vmId, privateIp);
      vm.moveTo(runDir);
      vm.setBackground(false);
      await vm.begin();
      await rename(spare.diskPath, diskPath);
      return vm;
    } catch (err) {
      log.warn({ template: template.key, err }, 'a waiting QEMU was of no use');
      await this.#discard(spare);
      return undefined;
    } finally {
      unclaim();
    }
  }

  /** Discards the spares of a template. */
  drop(template: Template): void {
    for (const spare of this.#waiting) if (spare.template === template) this.#discardSoon(spare);
  }

  /** Starts no more spares and discards all. */
  async close(): Promise<void> {
    this.#isOpen = false;
    clearTimeout(this.#timer);
    await Promise.all(this.#work);
    for (const spare of this.#waiting) this.#discardSoon(spare);
    await Promise.all(this.#work);
  }

  get #present(): number {
    return this.#waiting.length + this.#starting;
  }

  #fillSoon(): void {
    if (!this.#isOpen || this.#due.length === 0) return;
    this.#timer ??= setTimeout(() => {
      if (!this.#options.isBusy()) this.#track(this.#fillOne());
      this.#timer = undefined;
      this.#fillSoon();
    }, this.#options.fillAfterMs).unref();
  }

  /** Starts one spare. If there are as many as allowed, first discards the oldest spare of another template. */
  async #fillOne(): Promise<void> {
    const { use, count } = this.#options;
    const key = this.#due.shift();
    if (key === undefined) return;
    const oldest = this.#waiting.find(({ template }) => template.key !== key);
    if (this.#present >= count && oldest) this.#discardSoon(oldest);
    if (this.#present >= count) return;
    this.#starting++;
    await use(key, (template) => this.#start(template)).finally(() => this.#starting--);
  }

  async #start(template: Template): Promise<void> {
    const { vms, dir, runDir } = this.#options;
    const name = newVmId();
    const diskPath = join(dir, `${name}.qcow2`);
    const unclaim = vms.claim(diskPath);
    try {
      const restore = { ...template.restore, waits: true } as const;
      const vm = await launchClone(vms, { ...template, restore }, { diskPath, runDir: join(runDir, name) });
      vm.setBackground(true);
      const spare = { template, vm, diskPath };
      this.#waiting.push(spare);
      void vm.exited.then(() => this.#waiting.includes(spare) && this.#discardSoon(spare));
    } finally {
      unclaim();
    }
  }

  #forget(spare: Spare): void {
    this.#waiting = this.#waiting.filter((one) => one !== spare);
  }

  #discardSoon(spare: Spare): void {
    this.#forget(spare);
    this.#track(this.#discard(spare));
  }

  async #discard({ vm, diskPath }: Spare): Promise<void> {
    const { vms } = this.#options;
    const unclaim = vms.claim(diskPath);
    await vms.discard(vm).finally(() => rm(diskPath, { force: true }).finally(unclaim));
  }

  #track(work: Promise<void>): void {
    const tracked = work
      .catch((err) => this.#options.log.warn({ err }, 'work on waiting QEMUs failed'))
      .finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }
}
