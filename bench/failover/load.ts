// The load: clients that create machines, run commands, delete machines and credit the account, each one after the
// other. A request that fails is repeated with the same key until it is acknowledged. Remembers what was acknowledged
// and when requests failed.
import { setTimeout as delay } from 'node:timers/promises';
import { callAdmin } from '../../packages/control-plane/tests/support/admin.ts';
import type { Replica } from './replica.ts';

/** `at`: when the answer came, in milliseconds of `performance.now()`. Status 0: no answer. */
export type Outcome = { at: number; status: number; retryAfter: boolean; what: string };
/** A pause between a failure and the next attempt, in milliseconds; shorter than Retry-After, to measure finely. */
const RETRY_MS = 50;

export class Load {
  /** The id of the machine of each key, and the references of credits. */
  readonly machines = new Map<string, string>();
  readonly deleted = new Set<string>();
  readonly credits = new Set<string>();
  readonly execs = new Map<string, string>();
  readonly outcomes: Outcome[] = [];
  readonly #replicas: readonly Replica[];
  readonly #key: string;
  readonly #accountId: string;
  #isOver = false;
  #clients: Promise<void>[] = [];

  constructor(replicas: readonly Replica[], account: { key: string; accountId: string }) {
    this.#replicas = replicas;
    this.#key = account.key;
    this.#accountId = account.accountId;
  }

  start(clients: number): void {
    this.#clients = Array.from({ length: clients }, (_, index) => this.#run(`client ${index}`, index));
  }

  /** Ends the load. Every request that was begun is repeated until it is acknowledged. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
  }

  async #run(name: string, index: number): Promise<void> {
    for (let number = 0; !this.#isOver; number++) {
      const replica = this.#replicas[(index + number) % this.#replicas.length];
      if (!replica) return;
      const key = `${name}, ${number}`;
      const machine = await this.#http('create', replica, 'POST', '/v1/machines', { memory_mb: 128 }, key);
      this.machines.set(key, String(machine.id));
      await this.#credit(replica, key);
      const exec = await this.#http('exec', replica, 'POST', `/v1/machines/${machine.id}/execs`, { command: 'true' });
      this.execs.set(String(exec.id), String(machine.id));
      if (number % 2 === 0) continue;
      await this.#http('delete', replica, 'DELETE', `/v1/machines/${machine.id}`);
      this.deleted.add(String(machine.id));
    }
  }

  async #http(
    what: string,
    { baseUrl }: Replica,
    method: string,
    path: string,
    body?: object,
    key?: string,
  ): Promise<Record<string, unknown>> {
    for (;;) {
      const response = await fetch(`${baseUrl}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${this.#key}`,
          ...(body ? { 'content-type': 'application/json' } : {}),
          ...(key ? { 'idempotency-key': key } : {}),
        },
        ...(body ? { body: JSON.stringify(body) } : {}),
      }).catch(() => undefined);
      const json = ((await response?.json().catch(() => undefined)) ?? {}) as Record<string, unknown>;
      this.#note(what, response?.status ?? 0, response?.headers.has('retry-after') ?? false);
      // A delete whose answer was lost is a 404 when it is repeated, or a machine in state `destroyed`.
      if (response && (response.status < 300 || (what === 'delete' && [404, 409].includes(response.status))))
        return json;
      await delay(RETRY_MS);
    }
  }

  async #credit({ adminSocket }: Replica, reference: string): Promise<void> {
    const path = `/admin/accounts/${this.#accountId}/credit`;
    for (;;) {
      const answer = await callAdmin(adminSocket, path, { eur: '1', as: 'top-up', reference }).catch(() => undefined);
      this.#note('credit', answer?.status ?? 0, true);
      if (answer?.status === 200) {
        this.credits.add(reference);
        return;
      }
      await delay(RETRY_MS);
    }
  }

  #note(what: string, status: number, retryAfter: boolean): void {
    this.outcomes.push({ at: performance.now(), status, retryAfter, what });
  }
}
