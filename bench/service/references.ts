// Runs the two reference measurements, a gVisor start and a bare QEMU restore. Sections run them between their own
// measurements, so that other load on this computer affects all of them alike.
import type { ReferenceTimes } from './figures.ts';
import { timeGvisor } from './gvisor.ts';
import type { QemuRestore } from './qemu-restore.ts';

export class References {
  readonly hasGvisor: boolean;
  readonly #restore: QemuRestore | undefined;

  constructor(hasGvisor: boolean, restore: QemuRestore | undefined) {
    this.hasGvisor = hasGvisor;
    this.#restore = restore;
  }

  /** Runs each reference once and adds its time to `into`. Skips a reference that is not available. */
  async sample(into: ReferenceTimes): Promise<void> {
    if (this.hasGvisor) into.gvisor.push(await timeGvisor());
    if (this.#restore) into.restore.push((await this.#restore.time()).running);
  }
}

export function noTimes(): ReferenceTimes {
  return { gvisor: [], restore: [] };
}
