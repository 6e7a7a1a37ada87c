// Orders what happens to the copies of an object: one thing at a time for each id. The newest wins: a removal and a
// newer copy end a copy that is being received, because the process that sends it may have been replaced.
import type { Readable } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { QueuePerId } from '../storage/queue-per-id.ts';

/** How many removals are remembered, so that a delayed copy cannot bring an object back. */
const REMEMBERED_REMOVED = 10_000;

type Receiving = { generation: number; controller: AbortController };

export class Transfers {
  readonly #sending = new Map<string, Set<AbortController>>();
  readonly #receiving = new Map<string, Receiving>();
  /**
   * The latest removed generation of each id, oldest first. In memory only: a restart of the agent breaks the
   * connections of all delayed calls.
   */
  readonly #removed = new Map<string, number>();
  readonly #queue = new QueuePerId();

  /** `end` must be called at the end of the stream. `signal` is aborted when the object changes. */
  beginSending(id: string): { signal: AbortSignal; end: () => void } {
    const controller = new AbortController();
    const all = this.#sending.get(id) ?? new Set();
    this.#sending.set(id, all.add(controller));
    const end = () => {
      all.delete(controller);
      if (all.size === 0) this.#sending.delete(id);
    };
    return { signal: controller.signal, end };
  }

  endSending(id: string): void {
    for (const controller of this.#sending.get(id) ?? [])
      controller.abort(new Error(`${id} changed while it was sent`));
  }

  /**
   * Runs `work`, which takes in a copy from `source`. Throws `conflict` when this generation is out of date. A newer
   * copy or a removal destroys `source`.
   */
  async receive<T>(
    id: string,
    generation: number,
    source: Readable,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    this.#refuseRemoved(id, generation);
    const other = this.#receiving.get(id);
    if (other && other.generation > generation) throw new ServiceError('conflict', 'a newer copy is being received');
    other?.controller.abort(new ServiceError('host_unavailable', 'the copy was begun anew'));
    const controller = new AbortController();
    // Otherwise a source that sends nothing more would hold up what comes after it.
    controller.signal.addEventListener('abort', () => source.destroy(controller.signal.reason), { once: true });
    const mine = { generation, controller };
    this.#receiving.set(id, mine);
    try {
      return await this.#queue.run(id, () => {
        controller.signal.throwIfAborted();
        this.#refuseRemoved(id, generation);
        return work(controller.signal);
      });
    } finally {
      if (this.#receiving.get(id) === mine) this.#receiving.delete(id);
    }
  }

  /** Runs `work`, which removes copies of `generation` and older ones. */
  remove(id: string, generation: number, work: () => Promise<void>): Promise<void> {
    this.#remember(id, generation);
    const receiving = this.#receiving.get(id);
    if (receiving && receiving.generation <= generation)
      receiving.controller.abort(new ServiceError('conflict', `${id} was removed`));
    return this.#queue.run(id, work);
  }

  #refuseRemoved(id: string, generation: number): void {
    if ((this.#removed.get(id) ?? 0) >= generation) throw new ServiceError('conflict', `${id} was removed`);
  }

  #remember(id: string, generation: number): void {
    this.#removed.set(id, Math.max(generation, this.#removed.get(id) ?? 0));
    const [oldest] = this.#removed.keys();
    if (this.#removed.size > REMEMBERED_REMOVED && oldest !== undefined) this.#removed.delete(oldest);
  }
}
