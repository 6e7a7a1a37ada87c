// The templates of a host: found by shape, made in the background when a shape was asked for, the least recently used gone
// first when memory or disk get tight. A cache: without one, a machine boots cold.
import { closeSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { newVmId, type Vm } from '../hypervisor/driver.ts';
import { CommandError } from '../run-command.ts';
import { isOutOfRoom } from '../storage/overlay.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { type ClonePlace, launchClone } from './clone.ts';
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

/** After a template could not be made, or was of no use when it was new, nobody tries for this long. */
const RETRY_AFTER_MS = 60_000;
/** Clones in a row that came to nothing after they were restored: by then it is the template. */
const MAX_FAILED_CLONES = 3;

export type TemplatesOptions = {
  vms: VmHost;
  /** Of the templates, and of the run directories while they are made. */
  dir: string;
  runDir: string;
  /** Host memory that templates may hold, and disk that they may take, bytes. */
  memoryBytes: number;
  diskBytes: number;
  /** Factor on the time a boot may take. */
  patience: number;
  log: { info(details: object, message: string): void; warn(details: object, message: string): void };
  /** A template can be used from now on. */
  onReady: (key: string) => void;
};

type Loaded = {
  template: Template;
  users: number;
  isDropped: boolean;
  failedClones: number;
  loadedAt: number;
  /** Ms since 1970, as on disk. */
  usedAt: number;
};

export class Templates {
  readonly #options: TemplatesOptions;
  readonly #loaded = new Map<string, Loaded>();
  readonly #wanted = new Map<string, Shape>();
  readonly #failedAt = new Map<string, number>();
  /** Templates that are read from disk now: half a second, less than a cold boot. */
  readonly #loading = new Map<string, Promise<boolean>>();
  readonly #closing = new AbortController();
  #work: Promise<void> | undefined;

  constructor(options: TemplatesOptions) {
    this.#options = options;
  }

  /**
   * Takes up what earlier agents left, in the background: the last used first, as long as there is room. What they were
   * making is removed: their VMs are gone by now.
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

  /** Keys of the templates on disk: what a VM of an earlier agent may have come from. */
  keysOnDisk(): ReadonlySet<string> {
    return new Set(listTemplates(this.#options.dir).map(({ key }) => key));
  }

  /** Runs `work` with the template of a key, which stays as it is meanwhile; undefined when there is none now. */
  async use<T>(key: string, work: (template: Template) => Promise<T>): Promise<T | undefined> {
    await this.#loading.get(key);
    const loaded = this.#loaded.get(key);
    if (!loaded) return undefined;
    loaded.users++;
    loaded.usedAt = now();
    try {
      touchTemplate(this.#options.dir, key, loaded.usedAt);
      return await work(loaded.template);
    } finally {
      loaded.users--;
      this.#closeUnused(loaded);
    }
  }

  /** Sees to it, in the background, that there will be a template of this shape. */
  want(shape: Shape): void {
    const key = this.keyOf(shape);
    const failedAt = this.#failedAt.get(key);
    if (this.#isClosed || this.#loaded.has(key) || this.#wanted.has(key)) return;
    if (failedAt !== undefined && performance.now() - failedAt < RETRY_AFTER_MS) return;
    this.#wanted.set(key, shape);
    this.#run(() => this.#provide(key, shape).finally(() => this.#wanted.delete(key)));
  }

  /**
   * Starts a VM from a template that is in use; see {@link launchClone}. A template that no VM can be restored from goes,
   * and is made anew when it is wanted.
   */
  async clone(template: Template, place: ClonePlace): Promise<Vm> {
    try {
      return await launchClone(this.#options.vms, template, place);
    } catch (error) {
      // A full disk, and a tool of the host that fails, say nothing about the template.
      if (!isOutOfRoom(error) && !(error instanceof CommandError)) this.#reject(template);
      throw error;
    }
  }

  /** Whether the guest of a clone did what it was asked. The third in a row that did not takes the template along. */
  judge(template: Template, didWork: boolean): void {
    const loaded = this.#loaded.get(template.key);
    if (loaded?.template !== template) return;
    loaded.failedClones = didWork ? 0 : loaded.failedClones + 1;
    if (loaded.failedClones >= MAX_FAILED_CLONES) this.#reject(template);
  }

  /**
   * Removes the templates that stand on a layer that nobody needs, and returns the paths of the layers that the others, and
   * those that are being made, stand on.
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

  /** Ends what is made; what there is stays on disk. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#work;
    for (const key of [...this.#loaded.keys()]) this.#drop(key);
  }

  async #provide(key: string, shape: Shape): Promise<void> {
    if (this.#isClosed || this.#loaded.has(key)) return;
    if (this.keysOnDisk().has(key) && (await this.#load(key, now()))) return;
    const { vms, dir, runDir, patience, log } = this.#options;
    const name = newVmId();
    const abort = this.#closing.signal;
    try {
      const place = { templatesDir: dir, runDir: join(runDir, name), name, patience, abort };
      this.#hold(await makeTemplate(vms, place, key, shape), now());
      log.info({ template: key, vcpus: shape.vcpus, memory_mb: shape.memoryMb }, 'template made');
    } catch (err) {
      if (this.#isClosed) return;
      this.#failedAt.set(key, performance.now());
      log.warn({ template: key, err }, 'a template could not be made; machines of its shape boot cold');
    }
  }

  /** False when it was broken and is gone. */
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

  #hold(template: Template, usedAt: number): void {
    const { key } = template;
    this.#failedAt.delete(key);
    const loadedAt = performance.now();
    this.#loaded.set(key, { template, users: 0, isDropped: false, failedClones: 0, loadedAt, usedAt });
    touchTemplate(this.#options.dir, key, usedAt);
    this.#makeRoom();
    if (this.has(key)) this.#options.onReady(key);
  }

  /** The one used last always stays: one that is larger than the bound is better than none. */
  #makeRoom(): void {
    const byUse = [...this.#loaded].sort(([, a], [, b]) => a.usedAt - b.usedAt).map(([key]) => key);
    for (const key of byUse.slice(0, -1)) {
      if (this.#heldBytes() <= this.#options.memoryBytes) break;
      this.#drop(key);
    }
    let onDisk = 0;
    for (const [place, { key, diskBytes }] of listTemplates(this.#options.dir).entries()) {
      onDisk += diskBytes;
      if (onDisk <= this.#options.diskBytes || place === 0) continue;
      this.#drop(key);
      removeTemplate(this.#options.dir, key);
    }
  }

  #reject(template: Template): void {
    const { key } = template;
    const loaded = this.#loaded.get(key);
    // One that is late must not take the next template of that key along.
    if (loaded?.template !== template) return;
    // Making one that is broken from the start again and again would never end.
    if (performance.now() - loaded.loadedAt < RETRY_AFTER_MS) this.#failedAt.set(key, performance.now());
    this.#options.log.warn({ template: key }, 'a template is of no use and is removed');
    this.#drop(key);
    removeTemplate(this.#options.dir, key);
  }

  #drop(key: string): void {
    const loaded = this.#loaded.get(key);
    if (!loaded) return;
    this.#loaded.delete(key);
    loaded.isDropped = true;
    this.#closeUnused(loaded);
  }

  /** A number that is closed while somebody counts on it would be given to the next file that is opened. */
  #closeUnused(loaded: Loaded): void {
    if (loaded.isDropped && loaded.users === 0) closeSync(loaded.template.restore.memoryFd);
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #heldBytes(): number {
    return [...this.#loaded.values()].reduce((sum, { template }) => sum + template.usedBytes, 0);
  }

  /** One after the other. */
  #run(work: () => Promise<void>): void {
    this.#work = (this.#work ?? Promise.resolve()).then(work).catch((err) => {
      this.#options.log.warn({ err }, 'work on templates failed');
    });
  }
}

/** Ms since 1970, with a fraction: two uses of one millisecond have an order too. */
function now(): number {
  return performance.timeOrigin + performance.now();
}
