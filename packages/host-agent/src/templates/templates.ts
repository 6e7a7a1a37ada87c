// The templates of a host: found by shape, made in the background when a shape was asked for, the least recently used gone
// first when memory or disk get tight. A cache: without one, a machine boots cold.
import { closeSync, mkdirSync } from 'node:fs';
import { newVmId } from '../hypervisor/driver.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { makeTemplate } from './make-template.ts';
import { type Shape, templateKey } from './shape.ts';
import {
  listTemplates,
  loadTemplate,
  removeTemplate,
  removeUnfinished,
  type Template,
  touchTemplate,
} from './template-files.ts';

/** After a template could not be made, nobody tries for this long. */
const RETRY_AFTER_MS = 60_000;

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

type Loaded = { template: Template; users: number; isDropped: boolean; usedAt: number };

export class Templates {
  readonly #options: TemplatesOptions;
  readonly #loaded = new Map<string, Loaded>();
  readonly #wanted = new Map<string, Shape>();
  readonly #failedAt = new Map<string, number>();
  /** Templates that are read from disk now: half a second, less than a cold boot. */
  readonly #loading = new Map<string, Promise<boolean>>();
  #work: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: TemplatesOptions) {
    this.#options = options;
  }

  /** Takes up what earlier agents left, in the background: the last used first, as long as there is room. */
  open(): void {
    const { dir } = this.#options;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    removeUnfinished(dir);
    this.#run(async () => {
      for (const { key } of listTemplates(dir)) {
        if (this.#isClosed || this.#heldBytes() >= this.#options.memoryBytes) return;
        await this.#load(key);
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
    loaded.usedAt = performance.now();
    try {
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

  /** A VM could not be restored from it: it goes, and is made anew when it is wanted. */
  reject(key: string): void {
    this.#drop(key);
    removeTemplate(this.#options.dir, key);
  }

  /** Ends what is made; what there is stays on disk. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#work;
    for (const key of [...this.#loaded.keys()]) this.#drop(key);
  }

  async #provide(key: string, shape: Shape): Promise<void> {
    if (this.#isClosed || this.#loaded.has(key)) return;
    if (this.keysOnDisk().has(key) && (await this.#load(key))) return;
    const { vms, dir, runDir, patience, log } = this.#options;
    const name = newVmId();
    try {
      const place = { templatesDir: dir, runDir: `${runDir}/${name}`, name, patience };
      this.#hold(await makeTemplate(vms, place, key, shape));
      log.info({ template: key, vcpus: shape.vcpus, memory_mb: shape.memoryMb }, 'template made');
    } catch (err) {
      this.#failedAt.set(key, performance.now());
      log.warn({ template: key, err }, 'a template could not be made; machines of its shape boot cold');
    }
  }

  /** False when it was broken and is gone. */
  #load(key: string): Promise<boolean> {
    const loading = this.#loadNow(key).finally(() => this.#loading.delete(key));
    this.#loading.set(key, loading);
    return loading;
  }

  async #loadNow(key: string): Promise<boolean> {
    try {
      if (!this.#loaded.has(key)) this.#hold(await loadTemplate(this.#options.dir, key));
      return true;
    } catch (err) {
      this.#options.log.warn({ template: key, err }, 'a template was broken and is removed');
      removeTemplate(this.#options.dir, key);
      return false;
    }
  }

  #hold(template: Template): void {
    const { key } = template;
    this.#failedAt.delete(key);
    this.#loaded.set(key, { template, users: 0, isDropped: false, usedAt: performance.now() });
    this.#makeRoom(key);
    touchTemplate(this.#options.dir, key, new Date());
    this.#options.onReady(key);
  }

  /** The newest always stays: one that is larger than the bound is better than none. */
  #makeRoom(newest: string): void {
    const byUse = [...this.#loaded].sort(([, a], [, b]) => a.usedAt - b.usedAt).map(([key]) => key);
    for (const key of byUse) {
      if (this.#heldBytes() <= this.#options.memoryBytes) break;
      if (key !== newest) this.#drop(key);
    }
    let onDisk = 0;
    for (const { key, diskBytes } of listTemplates(this.#options.dir)) {
      onDisk += diskBytes;
      if (onDisk <= this.#options.diskBytes || key === newest) continue;
      this.#drop(key);
      removeTemplate(this.#options.dir, key);
    }
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
