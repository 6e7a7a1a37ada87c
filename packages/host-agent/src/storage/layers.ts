// The layers of this host: disks that machines, snapshots, root volumes and templates stand on, written by nobody any more.
// `layers/<id>.qcow2`. Which of them is needed is found by looking at who names them (garbage.ts), not counted here.
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

  /** Throws when it is no id of a layer. */
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

  /** The first that is not there. */
  missingOf(ids: readonly string[]): string | undefined {
    return ids.find((id) => !LAYER_ID.test(id) || !this.has(id));
  }

  /** What it takes on disk, bytes. */
  storedBytes(id: string): number {
    return statSync(this.pathOf(id)).blocks * 512;
  }

  /** Makes a disk that nobody writes any more a layer: the agent's own, to be read by whoever is shown it. */
  add(id: string, diskPath: string): void {
    if (process.getuid?.() === 0) chownSync(diskPath, 0, 0);
    chmodSync(diskPath, 0o444);
    renameSync(diskPath, this.pathOf(id));
  }

  /** Everything in the folder, by the id of the layer that it is or would be. */
  list(): { id: string; path: string }[] {
    return readdirSync(this.#dir).map((name) => ({ id: basename(name, SUFFIX), path: join(this.#dir, name) }));
  }

  remove(id: string): void {
    rmSync(this.pathOf(id), { force: true });
  }
}
