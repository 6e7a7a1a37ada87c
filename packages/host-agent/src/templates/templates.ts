// The templates of a host. They are found by shape, made in the background when a shape is requested repeatedly, and
// removed least requested first when memory or disk get short. A shape that is not requested more often than others
// takes no room from them, so requests for unusual sizes cannot evict templates that others use. Templates are a cache:
// without one, a machine boots cold.
import { closeSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { newVmId, type Vm } from '../hypervisor/driver.ts';
import type { AgentMetrics } from '../metrics/metrics.ts';
import { CommandError } from '../run-command.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { isOutOfRoom } from '../storage/overlay.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { type BarePlace, type ClonePlace, launchBareClone, launchClone } from './clone.ts';
import { TemplateDemand } from './demand.ts';
import { makeTemplate } from './make-template.ts';
import { type Shape, templateKey } from './shape.ts';
import {
  layersOfTemplates,
  listTemplates,
  loadTemplate,
  removeTemplate,
  removeUnfinished,
  type Template,
  touchTemplate,
} from './template-files.ts';

/** Delay before a template is made again that could not be made, or that failed soon after it was loaded. */
const RETRY_AFTER_MS = 60_000;
/** When this many restored clones in a row fail, the template is considered broken. */
const MAX_FAILED_CLONES = 3;
/** A template is made when a shape was requested this often in an hour. Most odd sizes are requested only once. */
export const REQUESTS_FOR_TEMPLATE = 2;

export type TemplatesOptions = {
  vms: VmHost;
  /** `dir`: folder of the templates. `runDir`: folder of the run directories of VMs that become templates. */
  dir: string;
  runDir: string;
  /** Limits in bytes for the host memory that loaded templates occupy, and for their space on disk. */
  memoryBytes: number;
  diskBytes: number;
  /** After how many requests of a shape in an hour its template is made. */
  requestsForTemplate: number;
  /** Factor on the time limit for the boot of a new template. */
  patience: number;
  /** Length of the pause before a template is saved, in ms. */
  settleMs: number;
  /** A template is made only when the disk has room for its memory. */
  room: Pick<DiskRoom, 'refuseWhenShort'>;
  metrics: Pick<AgentMetrics, 'templateMakes'>;
  log: { info(details: object, message: string): void; warn(details: object, message: string): void };
  /** Called when a template becomes usable. */
  onReady: (template: Template) => void;
  /** Called when a template is no longer used for new machines. */
  onDropped: (template: Template) => void;
  /**
   * Called when a template was made or could not be made. Its layers may have become garbage meanwhile, because a
   * template that is being made keeps them.
   */
  onMade: () => void;
};

type Loaded = {
  template: Template;
  users: number;
  isDropped: boolean;
  failedClones: number;
  loadedAt: number;
  /** Ms since 1970, the same time as on disk. */
  usedAt: number;
};

export class Templates {
  readonly #options: TemplatesOptions;
  readonly #loaded = new Map<string, Loaded>();
  readonly #wanted = new Map<string, Shape>();
  /** When the making of a template failed, in ms of `performance.now()`. Infinity: another attempt would fail too. */
  readonly #failedAt = new Map<string, number>();
  /**
   * Templates that are being read from disk. This takes half a second, so a create waits for it instead of booting
   * cold.
   */
  readonly #loading = new Map<string, Promise<boolean>>();
  /** The keys of templates that are never removed to make room for others. */
  readonly #pinned = new Set<string>();
  readonly #demand = new TemplateDemand(() => performance.now());
  readonly #closing = new AbortController();
  #work: Promise<void> | undefined;

  constructor(options: TemplatesOptions) {
    this.#options = options;
  }

  /**
   * Loads the templates that earlier agents made, in the background and most recently used first, as far as memory
   * allows. Removes unfinished ones, because the VMs they came from are gone.
   */
  open(): void {
    const { dir, runDir } = this.#options;
    for (const one of [dir, runDir]) mkdirSync(one, { recursive: true, mode: 0o700 });
    removeUnfinished(dir);
    for (const name of readdirSync(runDir)) rmSync(join(runDir, name), { recursive: true, force: true });
    this.#run(async () => {
      for (const { key, usedAt } of listTemplates(dir)) {
        if (this.#isClosed || this.#heldBytes() >= this.#options.memoryBytes) return;
        const isSound = await this.#load(key, usedAt);
        if (isSound && !this.has(key)) return;
      }
    });
  }

  keyOf(shape: Shape): string {
    return templateKey(shape, this.#options.vms.hypervisor.fingerprint);
  }

  has(key: string): boolean {
    return this.#loaded.has(key);
  }

  /** Returns the shapes of the templates from which a VM can start now. */
  shapes(): Shape[] {
    return [...this.#loaded.values()].map(({ template }) => template.shape);
  }

  /** Returns the keys of all templates on disk. VMs of an earlier agent may have come from any of these. */
  keysOnDisk(): ReadonlySet<string> {
    return new Set(listTemplates(this.#options.dir).map(({ key }) => key));
  }

  /**
   * Calls `work` with the template of a key and keeps the template's memory open meanwhile. Returns undefined when
   * there is no such template.
   */
  async use<T>(key: string, work: (template: Template) => Promise<T>): Promise<T | undefined> {
    await this.#loading.get(key);
    const loaded = this.#loaded.get(key);
    if (!loaded) return undefined;
    loaded.usedAt = now();
    this.#demand.note(key);
    touchTemplate(this.#options.dir, key, loaded.usedAt);
    return this.#lend(loaded, work);
  }

  /** Like {@link use}, for work that no request waits for. It does not count as demand. */
  async useAhead(key: string, work: (template: Template) => Promise<void>): Promise<void> {
    const loaded = this.#loaded.get(key);
    if (loaded) await this.#lend(loaded, work);
  }

  /**
   * Provides the template of this shape without any request, and never removes it to make room for others. May be
   * repeated.
   */
  pin(shape: Shape): void {
    this.#pinned.add(this.keyOf(shape));
    this.#want(shape);
  }

  /**
   * Notes that a machine of this shape was requested and there was no template. Loads the template from disk, or makes
   * it when the shape was requested often enough, both in the background and only if there is room for it.
   */
  request(shape: Shape): void {
    const key = this.keyOf(shape);
    this.#demand.note(key);
    if (!this.#deservesRoom(key)) return;
    if (this.#demand.count(key) >= this.#options.requestsForTemplate || this.keysOnDisk().has(key)) this.#want(shape);
  }

  /** Loads or makes a template in the background, unless it is loaded, already under way, or failed recently. */
  #want(shape: Shape): void {
    const key = this.keyOf(shape);
    const failedAt = this.#failedAt.get(key);
    if (this.#isClosed || this.#loaded.has(key) || this.#wanted.has(key)) return;
    if (failedAt !== undefined && performance.now() - failedAt < RETRY_AFTER_MS) return;
    this.#wanted.set(key, shape);
    this.#run(() =>
      this.#provide(key, shape).finally(() => {
        this.#wanted.delete(key);
        this.#options.onMade();
      }),
    );
  }

  /**
   * Starts a VM from a template passed to the callback of {@link use}; throws like {@link launchClone}. A template that
   * no VM can be restored from is removed, and made again on the next request.
   */
  async clone(template: Template, place: ClonePlace): Promise<Vm> {
    try {
      return await launchClone(this.#options.vms, template, place);
    } catch (error) {
      // A full disk or a failing host tool says nothing about the template.
      if (!isOutOfRoom(error) && !(error instanceof CommandError)) this.#reject(template);
      throw error;
    }
  }

  /**
   * Starts a VM from a bare template on an existing disk. Throws like {@link launchBareClone}. A failure counts
   * as one failed clone ({@link judge}). It does not remove the template at once, because the disk may be damaged.
   */
  async cloneOnto(template: Template, place: BarePlace): Promise<Vm> {
    try {
      return await launchBareClone(this.#options.vms, template, place);
    } catch (error) {
      if (!isOutOfRoom(error) && !(error instanceof CommandError)) this.judge(template, false);
      throw error;
    }
  }

  /** Reports whether a clone's guest answered. After three failures in a row the template is removed. */
  judge(template: Template, didWork: boolean): void {
    const loaded = this.#loaded.get(template.key);
    if (loaded?.template !== template) return;
    loaded.failedClones = didWork ? 0 : loaded.failedClones + 1;
    if (loaded.failedClones >= MAX_FAILED_CLONES) this.#reject(template);
  }

  /**
   * Removes templates on a layer for which `isNeeded` returns false. Returns the layer paths of all other templates,
   * including those that are being made.
   */
  dropUnneeded(isNeeded: (layerPath: string) => boolean): string[] {
    const onDisk = layersOfTemplates(this.#options.dir);
    for (const [key, { template }] of this.#loaded) onDisk.set(key, template.shape.layerPaths);
    for (const [key, paths] of onDisk) {
      if (paths.every(isNeeded) || this.#loading.has(key)) continue;
      this.#drop(key);
      removeTemplate(this.#options.dir, key);
      onDisk.delete(key);
    }
    return [...onDisk.values(), ...[...this.#wanted.values()].map(({ layerPaths }) => layerPaths)].flat();
  }

  /** Aborts the template in progress and releases all memory. The templates on disk stay. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#work;
    for (const key of [...this.#loaded.keys()]) this.#drop(key);
  }

  async #provide(key: string, shape: Shape): Promise<void> {
    if (this.#isClosed || this.#loaded.has(key)) return;
    if (this.keysOnDisk().has(key) && (await this.#load(key, now()))) return;
    const { vms, dir, runDir, patience, settleMs, room, metrics, log } = this.#options;
    const name = newVmId();
    const abort = this.#closing.signal;
    const stop = metrics.templateMakes.startTimer();
    try {
      room.refuseWhenShort(shape.memoryMb * 2 ** 20);
      const place = { templatesDir: dir, runDir: join(runDir, name), name, patience, settleMs, abort };
      this.#hold(await makeTemplate(vms, place, key, shape), now());
      stop({ outcome: 'made' });
      log.info({ template: key, vcpus: shape.vcpus, memory_mb: shape.memoryMb }, 'template made');
    } catch (err) {
      if (this.#isClosed) return;
      stop({ outcome: 'failed' });
      const isForGood = err instanceof ServiceError && err.code === 'conflict';
      this.#failedAt.set(key, isForGood ? Infinity : performance.now());
      log.warn({ template: key, err }, 'a template could not be made; machines of its shape boot cold');
    }
  }

  /** Returns false when the template was broken and has been removed. */
  #load(key: string, usedAt: number): Promise<boolean> {
    const loading = this.#loadNow(key, usedAt).finally(() => this.#loading.delete(key));
    this.#loading.set(key, loading);
    return loading;
  }

  async #loadNow(key: string, usedAt: number): Promise<boolean> {
    try {
      const { dir } = this.#options;
      if (!this.#loaded.has(key)) this.#hold(await loadTemplate(dir, key, (shape) => this.keyOf(shape)), usedAt);
      return true;
    } catch (err) {
      this.#options.log.warn({ template: key, err }, 'a template was broken and is removed');
      removeTemplate(this.#options.dir, key);
      return false;
    }
  }

  /** Calls `work` and keeps the template's memory open meanwhile. */
  async #lend<T>(loaded: Loaded, work: (template: Template) => Promise<T>): Promise<T> {
    loaded.users++;
    try {
      return await work(loaded.template);
    } finally {
      loaded.users--;
      this.#closeUnused(loaded);
    }
  }

  #hold(template: Template, usedAt: number): void {
    const { key } = template;
    this.#failedAt.delete(key);
    const loadedAt = performance.now();
    this.#loaded.set(key, { template, users: 0, isDropped: false, failedClones: 0, loadedAt, usedAt });
    touchTemplate(this.#options.dir, key, usedAt);
    this.#makeRoom();
    if (this.has(key)) this.#options.onReady(template);
  }

  /**
   * Whether a template may be loaded or made: there is room for one more template of average size, besides those that
   * are being loaded or made, or a loaded template is requested less often.
   */
  #deservesRoom(key: string): boolean {
    const others = [...this.#loaded.keys()];
    if (others.length === 0) return true;
    const average = this.#heldBytes() / others.length;
    if ((others.length + this.#wanted.size + 1) * average <= this.#options.memoryBytes) return true;
    return others.some((other) => !this.#pinned.has(other) && this.#demand.count(other) < this.#demand.count(key));
  }

  /**
   * Removes the least requested templates until memory and disk are within their limits. The most requested one always
   * stays, because a template above the limit is better than none.
   */
  #makeRoom(): void {
    const loaded = [...this.#loaded].map(([key, { usedAt }]) => ({ key, usedAt }));
    for (const { key } of this.#mostRequestedFirst(loaded).slice(1).reverse()) {
      if (this.#heldBytes() <= this.#options.memoryBytes) break;
      this.#drop(key);
    }
    let onDisk = 0;
    for (const [place, { key, diskBytes }] of this.#mostRequestedFirst(listTemplates(this.#options.dir)).entries()) {
      onDisk += diskBytes;
      if (onDisk <= this.#options.diskBytes || place === 0) continue;
      this.#drop(key);
      removeTemplate(this.#options.dir, key);
    }
  }

  /** Sorts templates: pinned ones, then by the number of requests, then the most recently used first. */
  #mostRequestedFirst<T extends { key: string; usedAt: number }>(templates: readonly T[]): T[] {
    const rank = ({ key }: T) => (this.#pinned.has(key) ? Infinity : this.#demand.count(key));
    const ranked = templates.map((template) => ({ template, rank: rank(template) }));
    ranked.sort((a, b) => (a.rank === b.rank ? b.template.usedAt - a.template.usedAt : b.rank - a.rank));
    return ranked.map(({ template }) => template);
  }

  #reject(template: Template): void {
    const { key } = template;
    const loaded = this.#loaded.get(key);
    // The key may belong to a newer template by now, which must not be removed for the failure of an older one.
    if (loaded?.template !== template) return;
    // Delays the next attempt, because a template that is broken from the start would be remade endlessly.
    if (performance.now() - loaded.loadedAt < RETRY_AFTER_MS) this.#failedAt.set(key, performance.now());
    this.#options.log.warn({ template: key }, 'a template does not work and is removed');
    this.#drop(key);
    removeTemplate(this.#options.dir, key);
  }

  #drop(key: string): void {
    const loaded = this.#loaded.get(key);
    if (!loaded) return;
    this.#loaded.delete(key);
    loaded.isDropped = true;
    this.#options.onDropped(loaded.template);
    this.#closeUnused(loaded);
  }

  /**
   * Closes the memory only when nobody uses it. Otherwise the kernel could assign the same descriptor number to another
   * file, and a user of the template would read that file.
   */
  #closeUnused(loaded: Loaded): void {
    if (loaded.isDropped && loaded.users === 0) closeSync(loaded.template.restore.memoryFd);
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #heldBytes(): number {
    return [...this.#loaded.values()].reduce((sum, { template }) => sum + template.usedBytes, 0);
  }

  /** Runs the work after all earlier work has ended. */
  #run(work: () => Promise<void>): void {
    this.#work = (this.#work ?? Promise.resolve()).then(work).catch((err) => {
      this.#options.log.warn({ err }, 'work on templates failed');
    });
  }
}

/** Returns ms since 1970 with fractions, so that two uses in the same millisecond stay in order. */
function now(): number {
  return performance.timeOrigin + performance.now();
}
