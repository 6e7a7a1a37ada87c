// Stops the vCPUs of a VM and lets them run. Two parties may stop them, independently of each other: the machine's own
// operations (`pause`), and the host while its disk is short of space (`hold`). The vCPUs run only when neither has
// stopped them.
import type { QmpClient } from './qmp.ts';

/** QEMU's run states in which the guest goes on after `cont`. In others, such as `shutdown`, the guest has ended. */
const CAN_GO_ON: readonly unknown[] = ['paused', 'io-error'];

export class Vcpus {
  readonly #qmp: QmpClient;
  /**
   * Also false for a VM that an earlier agent left paused. The code that takes such a VM over pauses or resumes it
   * explicitly.
   */
  #isPaused = false;
  #isHeld = false;
  /** The work of the last {@link hold} and the last {@link letGo}, so that a repeated call waits for the same work. */
  #holding: Promise<void> = Promise.resolve();
  #lettingGo: Promise<void> = Promise.resolve();

  constructor(qmp: QmpClient) {
    this.#qmp = qmp;
    // Other code resumes the guest without regard to a hold, for example after saving its memory. So stop it again.
    qmp.on('event', (name) => {
      if (name === 'RESUME' && this.#isHeld) qmp.execute('stop').catch(() => {});
    });
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  async pause(): Promise<void> {
    this.#isPaused = true;
    await this.#stop();
  }

  /** Lets the guest run, or go on as soon as it is not held any more. */
  async resume(): Promise<void> {
    this.#isPaused = false;
    if (!this.#isHeld) await this.#qmp.execute('cont');
  }

  /**
   * Stops the guest until {@link letGo}, whatever else resumes it. May be repeated. Throws when QEMU does not answer.
   * The guest then does not count as held, so a repetition tries again.
   */
  hold(): Promise<void> {
    if (this.#isHeld) return this.#holding;
    this.#isHeld = true;
    this.#holding = this.#stop().catch((error: unknown) => {
      this.#isHeld = false;
      throw error;
    });
    return this.#holding;
  }

  /**
   * Ends a {@link hold}. The guest goes on unless it is paused or has ended. When QEMU does not answer, throws, and the
   * guest stays held, so a repetition tries again.
   */
  letGo(): Promise<void> {
    if (!this.#isHeld) return this.#lettingGo;
    this.#isHeld = false;
    this.#lettingGo = this.goOn().catch((error: unknown) => {
      this.#isHeld = true;
      throw error;
    });
    return this.#lettingGo;
  }

  /** Lets the guest go on after QEMU stopped it, unless it is held, is paused or has ended. Throws without answer. */
  async goOn(): Promise<void> {
    if (this.#isHeld || this.#isPaused || !CAN_GO_ON.includes(await this.#askRunState())) return;
    // A new hold may have begun while QEMU was asked for its run state.
    if (!this.#isHeld) await this.#qmp.execute('cont');
  }

  /** QEMU's run state, or undefined when QEMU does not answer. */
  runState(): Promise<string | undefined> {
    return this.#askRunState().catch(() => undefined);
  }

  async #stop(): Promise<void> {
    await this.#qmp.execute('stop');
  }

  async #askRunState(): Promise<string | undefined> {
    return (Object(await this.#qmp.execute('query-status')) as { status?: string }).status;
  }
}
