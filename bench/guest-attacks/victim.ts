// The victim: another account with one machine, which reads its machine and runs jobs. Measures how long that takes.
import type { Client } from '@sandbar/sdk/client.ts';
import { percentile } from '../statistics.ts';

/** Times in ms. A request that failed counts as infinitely long. */
export type Times = { get: number[]; exec: number[]; errors: string[] };

/** The bounds during an attack and soon after it. A job may take EXEC_FACTOR times its usual time. */
export const GET_BOUND_MS = 50;
export const EXEC_FACTOR = 2;

const GETS_PER_EXEC = 5;
/** The service counts as recovered when this many rounds of requests in a row took their usual time. */
const CALM_ROUNDS = 5;
const GIVE_UP_MS = 60_000;

export class Victim {
  readonly #sandbar: Client;
  readonly #machineId: string;

  constructor(sandbar: Client, machineId: string) {
    this.#sandbar = sandbar;
    this.#machineId = machineId;
  }

  /** Sends one request after the other for `ms` milliseconds, reads and jobs in turns. */
  async measure(ms: number): Promise<Times> {
    const times: Times = { get: [], exec: [], errors: [] };
    for (const until = performance.now() + ms; performance.now() < until; ) await this.#round(times);
    return times;
  }

  /**
   * Waits until requests take their usual time again. Returns the time in ms from `since` (of `performance.now()`)
   * until the first of these requests, or infinity after a minute. `usualExecMs`: the usual time of a job.
   */
  async recovery(since: number, usualExecMs: number): Promise<number> {
    for (;;) {
      const began = performance.now();
      if (began - since > GIVE_UP_MS) return Number.POSITIVE_INFINITY;
      const times: Times = { get: [], exec: [], errors: [] };
      for (let round = 0; round < CALM_ROUNDS; round++) await this.#round(times);
      const isCalm = Math.max(...times.get) < GET_BOUND_MS && median(times.exec) < EXEC_FACTOR * usualExecMs;
      if (isCalm) return began - since;
    }
  }

  async #round({ get, exec, errors }: Times): Promise<void> {
    const timed = async (times: number[], work: () => Promise<unknown>) => {
      const began = performance.now();
      try {
        await work();
        times.push(performance.now() - began);
      } catch (error) {
        errors.push(String(error));
        times.push(Number.POSITIVE_INFINITY);
      }
    };
    for (let count = 0; count < GETS_PER_EXEC; count++) {
      await timed(get, () => this.#sandbar.machines.get(this.#machineId));
    }
    await timed(exec, () => this.#sandbar.execs.run(this.#machineId, { command: 'true' }));
  }
}

export const median = (values: readonly number[]): number => percentile(values, 0.5);
export const p99 = (values: readonly number[]): number => percentile(values, 0.99);
