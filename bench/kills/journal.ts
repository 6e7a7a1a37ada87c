// Records what happens in a run: a log file with a line for each kill, operation and difference, and the counts for the
// summary.
import { appendFileSync, writeFileSync } from 'node:fs';
import type { WalletFigures } from './verdict/billing.ts';

export class Journal {
  readonly differences: string[] = [];
  /** How many operations the service acknowledged, by kind, such as `stop`. */
  readonly acts = new Map<string, number>();
  /** How many answers clients retried, by reason, and other events worth counting. */
  readonly retries = new Map<string, number>();
  /** What the run did to the wallet of each client. */
  readonly wallets = new Map<string, WalletFigures>();
  readonly #lastRetries = new Map<string, string>();
  readonly #file: string;

  /** Opens the log. Deletes an older log in the same file. */
  constructor(file: string) {
    this.#file = file;
    writeFileSync(file, '');
  }

  write(line: string): void {
    appendFileSync(this.#file, `${new Date().toISOString().slice(11, 23)} ${line}\n`);
  }

  /** Records an operation that the service acknowledged. `who` is the client. */
  act(who: string, kind: string, about: string): void {
    count(this.acts, kind);
    this.write(`${who} ${kind} ${about}`);
  }

  countActs(): number {
    return [...this.acts.values()].reduce((sum, number) => sum + number, 0);
  }

  countRetries(reason: string): number {
    return this.retries.get(reason) ?? 0;
  }

  retry(who: string, reason: string, about: string): void {
    count(this.retries, reason);
    // Do not write a retry that equals the last one of this client. Otherwise a client that waits for a process to come
    // back would fill the log.
    const line = `${who} retries after ${reason}: ${about}`;
    if (this.#lastRetries.get(who) !== line) this.write(line);
    this.#lastRetries.set(who, line);
  }

  /** Records that the service did or answered something wrong. */
  difference(sentence: string): void {
    this.differences.push(sentence);
    this.write(`DIFFERENCE ${sentence}`);
  }
}

export function count(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
