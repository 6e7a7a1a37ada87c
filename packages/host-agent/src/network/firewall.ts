// Keeps the kernel's packet filter equal to the wanted rules, which are in memory. A change writes only the difference
// from the rules that were written before. When that fails, for example because the host's owner flushed the tables,
// all tables are written anew. So the filter is correct in the end, whatever made a change fail.
import { runCommand } from '../run-command.ts';
import { NftSession } from './nft-session.ts';
import {
  type Assigned,
  additions,
  type HostFacts,
  hostChange,
  type RuleOptions,
  removals,
  tableNames,
  wholeTables,
  withoutTables,
} from './rules.ts';

/** Transactions of other programs can make ours fail. They are short, so a few attempts are enough. */
const WHOLE_ATTEMPTS = 3;
/** nft reads the commands of a session through a line editor, so the lines must stay short. */
const MAX_SESSION_ADDITIONS = 8;

export class Firewall {
  readonly #options: RuleOptions;
  readonly #session = new NftSession();
  /** Wanted addresses, by tap. */
  readonly #wanted: Map<string, string>;
  #written: Assigned = new Map();
  #host: HostFacts;
  #writtenHost: HostFacts;
  #isTableLost = false;
  #running: Promise<unknown> = Promise.resolve();
  #next: Promise<void> | undefined;

  private constructor(options: RuleOptions, host: HostFacts, assigned: Assigned) {
    this.#options = options;
    this.#host = host;
    this.#writtenHost = host;
    this.#wanted = new Map(assigned);
  }

  /** Replaces all rules in one transaction, with those for `assigned`. Throws CommandError. */
  static async create(options: RuleOptions, host: HostFacts, assigned: Assigned): Promise<Firewall> {
    const firewall = new Firewall(options, host, assigned);
    await firewall.#writeWhole(new Map(assigned));
    return firewall;
  }

  /**
   * Allows `tap` to send and receive as `ip`, and takes `ip` from all other taps. Resolves when the rules are in the
   * kernel. Returns the addresses that have lost their previous owner: the tap's old address, and `ip` if another tap
   * had it. The caller deletes their connections. Throws CommandError.
   */
  async assign(tap: string, ip: string): Promise<string[]> {
    const before = this.#wanted.get(tap);
    const others = [...this.#wanted].filter(([other, address]) => address === ip && other !== tap);
    for (const [other] of others) this.#wanted.delete(other);
    this.#wanted.set(tap, ip);
    await this.#settle();
    return [...(before !== undefined && before !== ip ? [before] : []), ...(others.length > 0 ? [ip] : [])];
  }

  /**
   * Adapts the rules to the host's network, and writes all rules anew if somebody removed a table. Resolves when the
   * rules are in the kernel. Throws CommandError.
   */
  async follow(host: HostFacts): Promise<void> {
    this.#host = host;
    const found = await runCommand('nft', ['list', 'tables']);
    this.#isTableLost = !tableNames(this.#options.table).every((name) => found.includes(`table ${name}\n`));
    await this.#settle();
  }

  /** Returns the address that `tap` may use. */
  addressOf(tap: string): string | undefined {
    return this.#wanted.get(tap);
  }

  /** Drops all traffic of `tap`; resolves when the change is in the kernel. */
  async release(tap: string): Promise<void> {
    this.#wanted.delete(tap);
    await this.#settle();
  }

  /** Returns the taps that the kernel's rules allow to send. Throws CommandError. */
  async listTaps(): Promise<string[]> {
    const text = await runCommand('nft', ['list', 'tables', 'bridge']);
    if (!text.includes(`table bridge ${this.#options.table}\n`)) return [];
    const set = await runCommand('nft', ['list', 'set', 'bridge', this.#options.table, 'pins']);
    return [...set.matchAll(/"([^"]+)" \. /g)].map((match) => match[1] ?? '');
  }

  async remove(): Promise<void> {
    this.#wanted.clear();
    await this.#running;
    this.#session.close();
    await nft(withoutTables(this.#options.table));
  }

  /** Runs one transaction at a time. All changes that are made while one runs go into the next one together. */
  #settle(): Promise<void> {
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      const written = this.#write();
      this.#running = written.catch(() => {});
      return written;
    });
    return this.#next;
  }

  async #write(): Promise<void> {
    const target = new Map(this.#wanted);
    if (this.#isTableLost) return this.#writeWhole(target);
    const removed = without(this.#written, target);
    const added = without(target, this.#written);
    const host = isEqual(this.#host, this.#writtenHost) ? undefined : this.#host;
    if (removed.size + added.size === 0 && !host) return;
    try {
      await this.#writeChange(removed, added, host);
      this.#written = target;
      this.#writtenHost = host ?? this.#writtenHost;
    } catch {
      await this.#writeWhole(target);
    }
  }

  async #writeChange(removed: Assigned, added: Assigned, host: HostFacts | undefined): Promise<void> {
    const { table } = this.#options;
    const addition = additions(table, added);
    if (!host && removed.size === 0 && added.size <= MAX_SESSION_ADDITIONS && this.#session.isUsable) {
      await this.#session.run(addition.command, addition.echoes);
      return;
    }
    await nft(
      (removed.size > 0 ? removals(table, removed) : '') +
        (added.size > 0 ? addition.command : '') +
        (host ? hostChange(table, host) : ''),
    );
  }

  async #writeWhole(target: Assigned): Promise<void> {
    const host = this.#host;
    for (let attempt = 1; ; attempt++) {
      try {
        await nft(wholeTables(this.#options, host, target));
        this.#written = target;
        this.#writtenHost = host;
        this.#isTableLost = false;
        return;
      } catch (error) {
        if (attempt === WHOLE_ATTEMPTS) throw error;
      }
    }
  }
}

/** The entries of `all` that are missing in `others` or different there. */
function without(all: Assigned, others: Assigned): Assigned {
  return new Map([...all].filter(([tap, ip]) => others.get(tap) !== ip));
}

function isEqual(one: HostFacts, other: HostFacts): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Runs `input` as one transaction. */
async function nft(input: string): Promise<void> {
  await runCommand('nft', ['-f', '-'], { input });
}
