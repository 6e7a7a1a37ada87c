// Terminals that stay open while replicas end. The SDK connects them again. Each one writes numbered lines all the time,
// so that a lost or repeated byte shows, and takes a line of input at the end.
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@sandbar/sdk/client.ts';
import type { Fleet } from './bed/fleet.ts';

const COUNT = 3;
const MACHINE = { memory_mb: 256, rootfs_size_gb: 2 };
const EXIT_CODE = 7;
/** Writes a line every 0.2 s until a line of input comes. */
const SCRIPT =
  'stty -echo; { i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.2; done; } & ' +
  `read -r typed; kill $!; wait; echo "typed $typed"; exit ${EXIT_CODE}`;
/** How long a terminal may try to connect again, and how long it may take to answer at the end. */
const PATIENCE_SEC = 120;

type Terminal = Awaited<ReturnType<Client['terminals']['open']>>;

/** What was seen of a terminal. */
type Seen = {
  text: string;
  brokenAt: number | undefined;
  /** When the connections broke and how long it took to have another, in milliseconds. */
  breaks: { at: number; tookMs: number }[];
  lostBytes: number;
  failure: unknown;
};

/** `done` resolves when the terminal has ended. */
type Watched = { terminal: Terminal; seen: Seen; done: Promise<void> };

export class OpenTerminals {
  readonly #client: Client;
  readonly #machineId: string;
  readonly #watched: Watched[] = [];

  /** Makes a machine of an account that pays nothing, and opens terminals in it. */
  static async open(fleet: Fleet): Promise<OpenTerminals> {
    const account = { email: 'terminals@fleet.test', tier: 'enterprise', billing_mode: 'unmetered' };
    const { api_key } = await fleet.operator('/admin/accounts', account);
    const client = new Client({ baseUrl: fleet.url, apiKey: String(api_key), retryForSec: PATIENCE_SEC });
    const machine = await client.machines.create(MACHINE);
    const terminals = new OpenTerminals(client, machine.id);
    for (let number = 0; number < COUNT; number++) await terminals.#add();
    return terminals;
  }

  private constructor(client: Client, machineId: string) {
    this.#client = client;
    this.#machineId = machineId;
  }

  /** How often connections broke since a moment of `performance.now()`, and the longest time until there was another. */
  breaksSince(moment: number): { count: number; longestMs: number } {
    const breaks = this.#watched.flatMap(({ seen }) => seen.breaks.filter(({ at }) => at >= moment));
    return { count: breaks.length, longestMs: Math.max(0, ...breaks.map(({ tookMs }) => tookMs)) };
  }

  /** Ends the terminals with a line of input. Returns a sentence for each difference from what they should have written. */
  async close(): Promise<string[]> {
    for (const { terminal } of this.#watched) await terminal.write('the end\n');
    const patience = new AbortController();
    const late = delay(PATIENCE_SEC * 1000, undefined, { signal: patience.signal }).catch(() => undefined);
    await Promise.race([Promise.all(this.#watched.map(({ done }) => done)), late]);
    patience.abort();
    const differences = await Promise.all(this.#watched.map((one, at) => findDifferences(one, `terminal ${at + 1}`)));
    for (const { terminal } of this.#watched) terminal.leave();
    await this.#client.machines.destroy(this.#machineId);
    return differences.flat();
  }

  async #add(): Promise<void> {
    const seen: Seen = { text: '', brokenAt: undefined, breaks: [], lostBytes: 0, failure: undefined };
    const terminal = await this.#client.terminals.open(this.#machineId, {
      command: ['sh', '-c', SCRIPT],
      onDisconnect: () => {
        seen.brokenAt = performance.now();
      },
      onReconnect: () => {
        const at = seen.brokenAt ?? performance.now();
        seen.breaks.push({ at, tookMs: performance.now() - at });
        seen.brokenAt = undefined;
      },
      onGap: (bytes) => {
        seen.lostBytes += bytes;
      },
    });
    this.#watched.push({ terminal, seen, done: readAll(terminal, seen) });
  }
}

async function readAll(terminal: Terminal, seen: Seen): Promise<void> {
  try {
    for await (const bytes of terminal) seen.text += Buffer.from(bytes).toString();
  } catch (error) {
    seen.failure = error;
  }
}

async function findDifferences({ terminal, seen }: Watched, name: string): Promise<string[]> {
  const { text, lostBytes, failure } = seen;
  if (failure !== undefined) return [`${name} ended with ${failure}`];
  const lines = text.split('\r\n');
  const at = lines.findIndex((line, index) => line !== `line ${index + 1}`);
  const wrote = lines.slice(at).join(' / ');
  if (wrote !== 'typed the end / ') return [`${name} wrote after line ${at}: ${wrote.slice(0, 200)}`];
  const exit = await terminal.exit;
  return [
    ...(lostBytes === 0 ? [] : [`${name} lost ${lostBytes} bytes`]),
    ...(exit?.code === EXIT_CODE ? [] : [`${name} exited with ${exit?.code}`]),
  ];
}
