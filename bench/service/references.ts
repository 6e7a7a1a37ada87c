// The two yardsticks, run in turns with what is measured, so that noise of this machine hits all alike.
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

  /** Runs each once and adds what it took; a yardstick that is missing adds nothing. */
  async sample(into: ReferenceTimes): Promise<void> {
    if (this.hasGvisor) into.gvisor.push(await timeGvisor());
    if (this.#restore) into.restore.push((await this.#restore.time()).running);
  }
}

export function noTimes(): ReferenceTimes {
  return { gvisor: [], restore: [] };
}
