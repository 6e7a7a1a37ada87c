// Collects garbage while large files go through the agent. Each piece of 64 KiB is garbage once it was passed on, and
// V8 would otherwise wait until the small objects around the pieces fill the young generation of its heap: the agent
// grew by 41 MiB while files of 1 GiB went through it.

/** After how many bytes the young generation is collected. A collection takes about 1 ms. */
const COLLECT_BYTES = 8 * 1024 * 1024;

export class EarlyCollection {
  #uncollectedBytes = 0;

  /** Notes that a piece was passed on. */
  readonly notePassed = ({ length }: Buffer): void => {
    this.#uncollectedBytes += length;
    if (this.#uncollectedBytes < COLLECT_BYTES) return;
    this.#uncollectedBytes = 0;
    // Node has this function only with --expose-gc.
    void globalThis.gc?.({ type: 'minor' });
  };
}
