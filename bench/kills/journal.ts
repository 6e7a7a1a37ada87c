// What happened in a run: a log file with a line for each kill, act and difference, and the counts of the summary.
import { appendFileSync, writeFileSync } from 'node:fs';

export class Journal {
  readonly differences: string[] = [];
  /** Acknowledged acts by their kind, such as `stop`. */
  readonly acts = new Map<string, number>();
  /** Answers that clients retried, by their reason, and other things worth counting. */
  readonly retries = new Map<string, number>();
  readonly #lastRetries = new Map<string, string>();
  readonly #file: string;

  /** Replaces an older log. */
  constructor(file: string) {
    this.#file = file;
    writeFileSync(file, '');
  }

  write(line: string): void {
    appendFileSync(this.#file, `${new Date().toISOString().slice(11, 23)} ${line}\n`);
  }

  /** An act that the service acknowledged. `who`: the client. */
  act(who: string, kind: string, about: string): void {
    count(this.acts, kind);
    this.write(`${who} ${kind} ${about}`);
  }

  countActs(): number {
    return [...this.acts.values()].reduce((sum, number) => sum + number, 0);
  }

  retry(who: string, reason: string, about: string): void {
    count(this.retries, reason);
    // A client that waits for a process to come back would fill the log.
    const line = `${who} retries after ${reason}: ${about}`;
    if (this.#lastRetries.get(who) !== line) this.write(line);
    this.#lastRetries.set(who, line);
  }

  /** Something that the service should not have done or said. */
  difference(sentence: string): void {
    this.differences.push(sentence);
    this.write(`DIFFERENCE ${sentence}`);
  }
}

export function count(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
