// Simulates `kill -9` of an agent between two file operations. It counts all changes of files. From a chosen change on,
// no further change happens.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

type Change = (...args: never[]) => unknown;

const SYNC = [
  'renameSync',
  'rmSync',
  'unlinkSync',
  'writeFileSync',
  'mkdirSync',
  'chmodSync',
  'ftruncateSync',
] as const;
const ASYNC = ['rename', 'rm', 'mkdir'] as const;

/** Counts changes to files from its construction on. Call `close` to restore the file system functions. */
export class MortalFiles {
  passed = 0;
  /**
   * The change at which the agent dies. With `after`, this change still happens, with `before` it does not. Later
   * changes never happen.
   */
  deathAt: { pass: number; when: 'before' | 'after' } | undefined;
  onDeath: () => void = () => {};
  readonly #originals = new Map<string, Change>();
  #isCounting = false;
  #isDead = false;

  constructor() {
    for (const name of SYNC) this.#wrap(fs as never, name, `${name}`);
    for (const name of ASYNC) this.#wrap(fs.promises as never, name, `promises.${name}`);
    syncBuiltinESMExports();
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  /** Starts counting at zero. The agent dies at `deathAt`. */
  begin(deathAt?: { pass: number; when: 'before' | 'after' }): void {
    this.passed = 0;
    this.deathAt = deathAt;
    this.#isCounting = true;
  }

  /** Lets file changes happen again, for the next agent. */
  revive(): void {
    this.#isCounting = false;
    this.#isDead = false;
  }

  /** Makes the agent die now: no file change happens after this. */
  die(): void {
    this.#isDead = true;
  }

  close(): void {
    for (const name of SYNC) Object.assign(fs, { [name]: this.#originals.get(name) });
    for (const name of ASYNC) Object.assign(fs.promises, { [name]: this.#originals.get(`promises.${name}`) });
    syncBuiltinESMExports();
  }

  #wrap(target: Record<string, Change>, name: string, key: string): void {
    const original = target[name] as Change;
    this.#originals.set(key, original);
    target[name] = (...args: never[]) => {
      this.#step('before');
      const result = original(...args);
      this.#step('after');
      return result;
    };
  }

  #step(when: 'before' | 'after'): void {
    if (this.#isDead) throw new Error('the agent is dead');
    if (!this.#isCounting) return;
    if (when === 'before') this.passed++;
    if (this.deathAt?.pass !== this.passed || this.deathAt.when !== when) return;
    this.#isDead = true;
    this.onDeath();
    throw new Error('the agent died');
  }
}
