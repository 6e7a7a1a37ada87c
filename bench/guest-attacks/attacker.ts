// The attacker: an account whose machines attack. Each attack gets new machines, because some attacks make their
// machines unusable.
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from '@sandbar/sdk/client.ts';
import { cpuSeconds, qemuPids } from '../service/processes.ts';
import type { Attack } from './attacks.ts';

/** The smallest disk of the image, so that a guest that fills it does not fill the host's. */
const DISK_GB = 2;
/** How often a job is started, in any of the machines: ten a second, half of what an account may start by default. */
const BETWEEN_JOBS_MS = 100;

export class Attacker {
  readonly #sandbar: Client;
  readonly #runMachines: string;
  readonly #stop = new AbortController();
  #ids: string[] = [];
  #starting: Promise<void>[] = [];

  /** `runMachines`: the folder of the run directories of machines. */
  constructor(sandbar: Client, runMachines: string) {
    this.#sandbar = sandbar;
    this.#runMachines = runMachines;
  }

  /** Creates the machines. */
  async prepare({ machines, vcpus }: Attack): Promise<void> {
    const wanted = { vcpus, rootfs_size_gb: DISK_GB };
    this.#ids = await Promise.all(
      Array.from({ length: machines }, async () => (await this.#sandbar.machines.create(wanted)).id),
    );
  }

  /** Starts the attack. Resolves when it is under way. */
  async begin({ jobs, startsJobs, warmUpMs }: Attack): Promise<void> {
    await Promise.all(
      this.#ids.map(async (id) => {
        for (const job of jobs()) await this.#sandbar.execs.start(id, job);
      }),
    );
    await delay(warmUpMs);
    if (startsJobs) this.#starting = this.#ids.map((id) => this.#keepStarting(id));
  }

  /** The processor time that the attacker's QEMUs have used so far, in seconds. */
  cpuSeconds(): number {
    const pids = qemuPids(this.#runMachines);
    return this.#ids.reduce((sum, id) => sum + cpuSeconds(pids.get(id) ?? 0), 0);
  }

  /** Destroys the machines, which ends the attack. */
  async end(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#ids.map((id) => this.#sandbar.machines.destroy(id)));
    this.#ids = [];
    await Promise.all(this.#starting);
  }

  /** Keeps starting jobs in the machine `id`. Ignores failures, because the hostile guest may answer anything. */
  async #keepStarting(id: string): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#sandbar.execs.start(id, { command: 'true' }, { signal }).catch(() => undefined);
      await delay(BETWEEN_JOBS_MS * this.#ids.length, undefined, { signal }).catch(() => undefined);
    }
  }
}
