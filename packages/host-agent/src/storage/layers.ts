// Stores the layers of this host as `layers/<id>.qcow2`: read-only disks below the disks of machines, snapshots, root
// volumes and templates. The layers have no reference counts; garbage.ts finds out which are needed.
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';

const SUFFIX = '.qcow2';
const LAYER_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export class LayerStore {
  readonly #dir: string;

  constructor(layersDir: string) {
    this.#dir = layersDir;
    mkdirSync(layersDir, { recursive: true, mode: 0o700 });
  }

  /** Returns the path of a layer's file. Throws when `id` is not a layer id. */
  pathOf(id: string): string {
    if (!LAYER_ID.test(id)) throw new Error(`"${id}" is not the id of a layer`);
    return join(this.#dir, `${id}${SUFFIX}`);
  }

  pathsOf(ids: readonly string[]): string[] {
    return ids.map((id) => this.pathOf(id));
  }

  has(id: string): boolean {
    return existsSync(this.pathOf(id));
  }

  /** Returns the first of the layers that does not exist, or undefined when all do. */
  missingOf(ids: readonly string[]): string | undefined {
    return ids.find((id) => !LAYER_ID.test(id) || !this.has(id));
  }

  /** Returns the space that a layer takes on disk, in bytes. */
  storedBytes(id: string): number {
    return statSync(this.pathOf(id)).blocks * 512;
  }

  /**
   * Moves a disk that nobody writes any more into the store. The agent becomes its owner, and it is readable for
   * everybody to whom a jail shows it.
   */
  add(id: string, diskPath: string): void {
    if (process.getuid?.() === 0) chownSync(diskPath, 0, 0);
    chmodSync(diskPath, 0o444);
    renameSync(diskPath, this.pathOf(id));
  }

  /** Lists all files in the folder, each with the layer id in its name. */
  list(): { id: string; path: string }[] {
    return readdirSync(this.#dir).map((name) => ({ id: basename(name, SUFFIX), path: join(this.#dir, name) }));
  }

  remove(id: string): void {
    rmSync(this.pathOf(id), { force: true });
  }
}
