// Removes layers that nothing uses any more. There are no reference counts: machines, snapshots, kept root disks and
// templates name the layers they use, and all other layers are garbage. The search and the removal are synchronous, so
// no new reference can appear in between. Every operation records the layers it will use before it uses them.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readMachineRecord } from '../machines/record.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { LayerStore } from './layers.ts';
import type { VolumeStore } from './volume-store.ts';

export type GarbageOptions = {
  machinesDir: string;
  layers: LayerStore;
  snapshots: SnapshotStore;
  volumes: VolumeStore;
  /**
   * Removes templates on layers that nothing else needs, since templates are only a cache. Returns the layer paths of
   * the other templates.
   */
  dropTemplates: (isNeeded: (layerPath: string) => boolean) => string[];
  log: { info(details: object, message: string): void; error(details: object, message: string): void };
};

export class Garbage {
  readonly #options: GarbageOptions;
  #isDue = false;

  constructor(options: GarbageOptions) {
    this.#options = options;
  }

  /** Schedules one collection for all calls in the same turn of the event loop. */
  collectSoon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    setImmediate(() => {
      this.#isDue = false;
      this.collect();
    });
  }

  /**
   * Removes all garbage layers. Removes nothing while a record cannot be read, because it may name any layer. Never
   * throws.
   */
  collect(): void {
    const { log } = this.#options;
    try {
      const strays = this.strays();
      for (const { path } of strays) rmSync(path, { recursive: true, force: true });
      if (strays.length > 0) log.info({ layers: strays.map(({ id }) => id) }, 'unused layers were removed');
    } catch (err) {
      log.error({ err }, 'no layer is removed, because a record cannot be read');
    }
  }

  /**
   * Returns the layers that nothing uses. Templates are only a cache, so this first removes every template with a layer
   * that no machine, snapshot or kept root disk uses. Templates that are being made stay, and so do their layers.
   * Throws when a record cannot be read.
   */
  strays(): { id: string; path: string }[] {
    const { layers, dropTemplates } = this.#options;
    if (layers.list().length === 0) return [];
    const needed = new Set(this.#needed().map((id) => layers.pathOf(id)));
    for (const path of dropTemplates((one) => needed.has(one))) needed.add(path);
    return layers.list().filter(({ path }) => !needed.has(path));
  }

  #needed(): string[] {
    const { machinesDir, snapshots, volumes } = this.#options;
    const ids = existsSync(machinesDir) ? readdirSync(machinesDir) : [];
    const machines = ids.flatMap((id) => {
      const record = readMachineRecord(join(machinesDir, id));
      if (!record) return [];
      return record.freezing === null ? record.layers : [...record.layers, record.freezing];
    });
    return [...machines, ...snapshots.layersInUse(), ...volumes.layersInUse()];
  }
}
