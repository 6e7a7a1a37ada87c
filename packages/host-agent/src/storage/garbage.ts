// Removes the layers that nobody stands on any more. Nothing counts: machines, snapshots, kept root disks and templates say
// what they stand on, and what none of them names is garbage. All of it is read and done without giving way to anything
// else of the agent, so that no reference appears in between; every operation notes what it is about to stand on first.
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
  /** A cache: templates are dropped that stand on layers which nobody else needs. Returns what the others stand on, as paths. */
  dropTemplates: (isNeeded: (layerPath: string) => boolean) => string[];
  log: { info(details: object, message: string): void; error(details: object, message: string): void };
};

export class Garbage {
  readonly #options: GarbageOptions;
  #isDue = false;

  constructor(options: GarbageOptions) {
    this.#options = options;
  }

  /** Collects soon, once for all who ask meanwhile. */
  collectSoon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    setImmediate(() => {
      this.#isDue = false;
      this.collect();
    });
  }

  /** Removes all that is garbage now. Nothing, as long as a record cannot be read: it may name anything. */
  collect(): void {
    const { log } = this.#options;
    try {
      const strays = this.strays();
      for (const { path } of strays) rmSync(path, { recursive: true, force: true });
      if (strays.length > 0)
        log.info({ layers: strays.map(({ id }) => id) }, 'layers that nobody stands on were removed');
    } catch (err) {
      log.error({ err }, 'no layer is removed: what is needed cannot be found out');
    }
  }

  /** What would be removed; drops templates. Throws when a record cannot be read. */
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
