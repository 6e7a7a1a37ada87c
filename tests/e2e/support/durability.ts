// Tests durability in rounds. In each round a program in a machine writes and syncs blocks, a process (QEMU, the host
// agent or the control plane) is killed at a random moment, and every block that was reported as synced is read back.
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from '@sandbar/sdk/client.ts';
import { countSynced, findLoss, startWriter, type Writer } from './durable-writer.ts';

export const VICTIMS = ['qemu', 'host-agent', 'control-plane'] as const;
export type Victim = (typeof VICTIMS)[number];

/** Access to the service under test. */
export type Surroundings = {
  sandbar: Client;
  /** Returns the process id to kill. */
  pidOf(victim: Victim, machineId: string): number;
};

const MOUNT = '/data';
const PATHS = ['/root/ledger', `${MOUNT}/ledger`];
const GIVE_UP_MS = 60_000;
const RETRY_MS = 20;
/** The kill comes after this many blocks were synced, plus a random delay of up to `LONGEST_MS`. */
const FIRST_BLOCKS = 5;
const LONGEST_MS = 400;

export class DurabilityRounds {
  readonly #around: Surroundings;
  readonly #volumeId: string;
  #machineId: string;
  #synced = 0;

  private constructor(around: Surroundings, machineId: string, volumeId: string) {
    this.#around = around;
    this.#machineId = machineId;
    this.#volumeId = volumeId;
  }

  /** Creates a machine with an empty volume. */
  static async begin(around: Surroundings): Promise<DurabilityRounds> {
    const { sandbar } = around;
    const machine = await sandbar.machines.create();
    const volume = await sandbar.volumes.create({ size_gb: 5 });
    await sandbar.volumes.attach(volume.id, { machine_id: machine.id, mount_path: MOUNT });
    return new DurabilityRounds(around, machine.id, volume.id);
  }

  /**
   * Runs one round: writes blocks, kills `victim`, starts the machine again and reads the blocks back. Returns a
   * sentence about the first lost block, or undefined when none was lost.
   */
  async round(victim: Victim): Promise<string | undefined> {
    const { sandbar, pidOf } = this.#around;
    const first = this.#synced;
    const writer = await startWriter(sandbar, this.#machineId, first, PATHS);
    await retry(async () => {
      if ((await countSynced(sandbar, writer)) < first + FIRST_BLOCKS) throw new Error('nothing is synced yet');
    });
    await delay(Math.random() * LONGEST_MS);
    process.kill(pidOf(victim, this.#machineId), 'SIGKILL');
    if (victim === 'qemu') await this.#moveOn(writer);
    else await this.#restart(writer);
    return findLoss(sandbar, this.#machineId, { first, end: this.#synced }, PATHS);
  }

  /**
   * Reads back the blocks of all rounds, then removes the machine and the volume. Returns a sentence about the first
   * lost block, or undefined when none was lost.
   */
  async end(): Promise<string | undefined> {
    const { sandbar } = this.#around;
    const loss = await findLoss(sandbar, this.#machineId, { first: 0, end: this.#synced }, PATHS);
    await sandbar.machines.destroy(this.#machineId);
    await sandbar.volumes.delete(this.#volumeId);
    return loss;
  }

  /** A machine in state error cannot be started again, so moves its root disk and its volume to a new machine. */
  async #moveOn(writer: Writer): Promise<void> {
    const { sandbar } = this.#around;
    await retry(async () => {
      const { state } = await sandbar.machines.get(this.#machineId);
      if (state !== 'error') throw new Error(`the machine is ${state}`);
    });
    this.#synced = await countSynced(sandbar, writer);
    const { root_volume_id: rootVolumeId } = await sandbar.machines.destroy(this.#machineId, { preserveStorage: true });
    const next = await sandbar.machines.create({ root_volume_id: rootVolumeId ?? '' });
    this.#machineId = next.id;
    await sandbar.volumes.attach(this.#volumeId, { machine_id: next.id, mount_path: MOUNT });
  }

  /**
   * Waits until the restarted service can cancel the writer, then stops and starts the machine, which runs on
   * meanwhile.
   */
  async #restart(writer: Writer): Promise<void> {
    const { sandbar } = this.#around;
    await retry(() => sandbar.execs.cancel(writer.machineId, writer.jobId));
    await retry(() => sandbar.execs.wait(writer.machineId, writer.jobId));
    this.#synced = await countSynced(sandbar, writer);
    await retry(() => sandbar.machines.stop(this.#machineId));
    await retry(() => sandbar.machines.start(this.#machineId));
  }
}

/** Repeats `work` until it succeeds, for at most `GIVE_UP_MS`. */
async function retry<T>(work: () => Promise<T>): Promise<T> {
  for (const until = performance.now() + GIVE_UP_MS; ; await delay(RETRY_MS)) {
    try {
      return await work();
    } catch (error) {
      if (performance.now() > until) throw error;
    }
  }
}
