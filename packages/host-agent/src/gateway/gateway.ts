// Keeps the guest gateway running: starts it, and starts it again when it ends. When it ends, all sessions with guests
// close, and their owners open new ones (machines/guest-link.ts). Jobs go on meanwhile in their machines.
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Guest, GuestAddress, GuestConnector } from '../guest/guest.ts';
import { type GatewayCommand, gatewayCommand } from './command.ts';
import { GatewayConnection, GatewayGone, GuestNotListening } from './connection.ts';
import { placeSocket } from './guest-socket.ts';
import { CHANNEL_FD } from './protocol.ts';
import { RemoteGuest } from './remote-guest.ts';

/** How long a gateway may take until it answers. It takes about 0.5 s. */
const START_MS = 30_000;
/** A gateway that ends sooner counts as a failed try, and the pause before the next one grows. */
const LASTING_MS = 2000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
/** How often a guest's socket is tried on which nobody listens yet. */
const RETRY_MS = 3;
/** How much of what the gateway prints is kept to explain its end, in characters. */
const MAX_LAST_WORDS = 2000;

export type GatewayOptions = {
  home: string;
  /** The folder of the guests' sockets. */
  dir: string;
  isRoot: boolean;
  log: { error(details: object, message: string): void };
};

type Turn = PromiseWithResolvers<GatewayConnection>;

export class Gateway implements GuestConnector {
  readonly #options: GatewayOptions;
  readonly #command: GatewayCommand;
  readonly #closing = new AbortController();
  readonly #kept: Promise<void>;
  #child: ChildProcess | undefined;
  /** Settles with the connection to the present gateway, or to the next one while none runs. */
  #turn: Turn = newTurn();

  private constructor(options: GatewayOptions, command: GatewayCommand) {
    this.#options = options;
    this.#command = command;
    this.#kept = this.#keep();
  }

  /** Starts the gateway, without waiting until it is ready. Throws when a tool is missing on this host. */
  static async start(options: GatewayOptions): Promise<Gateway> {
    return new Gateway(options, await gatewayCommand(options.home, options.dir, options.isRoot));
  }

  /** Resolves when sessions can be opened. Rejects with the reason when the gateway does not start. */
  async ready(): Promise<void> {
    await this.#turn.promise;
  }

  /** The pid of the started command; in a jail it is an ancestor of the gateway. Undefined while none runs. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  async connect(address: GuestAddress, signal: AbortSignal, isGone: () => boolean): Promise<Guest> {
    for (;;) {
      try {
        return await this.#tryConnect(address, signal);
      } catch (error) {
        if (!mayRetry(error) || signal.aborted || this.#closing.signal.aborted || isGone()) throw error;
        await delay(RETRY_MS);
      }
    }
  }

  /** Ends the gateway, and with it all sessions. */
  async close(): Promise<void> {
    this.#closing.abort();
    if (this.#child) kill(this.#child);
    await this.#kept;
    await this.#command.remove();
  }

  async #tryConnect({ dir, name, token }: GuestAddress, signal: AbortSignal): Promise<Guest> {
    const connection = await inTime(this.#turn.promise, signal);
    const id = connection.newSessionId();
    const place = join(this.#options.dir, String(id));
    placeSocket(dir, name, place, this.#command.owner);
    try {
      return new RemoteGuest(await connection.openSession(id, token, signal));
    } finally {
      rmSync(place, { force: true });
    }
  }

  async #keep(): Promise<void> {
    let pauseMs = 0;
    while (!this.#closing.signal.aborted) {
      const startedAt = performance.now();
      const why = await this.#live();
      if (this.#closing.signal.aborted) return;
      this.#options.log.error({ why }, 'the guest gateway ended, and is started again');
      const didLast = performance.now() - startedAt > LASTING_MS;
      pauseMs = didLast ? 0 : Math.min(Math.max(pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
      await delay(pauseMs, undefined, { signal: this.#closing.signal }).catch(() => {});
    }
  }

  /** Runs one gateway to its end, and returns why it ended. */
  async #live(): Promise<string> {
    const turn = this.#turn;
    const child = this.#spawn();
    this.#child = child;
    const ended = endOf(child);
    const connection = new GatewayConnection(child.stdio[CHANNEL_FD] as Duplex, () => kill(child));
    const startTimer = setTimeout(() => connection.fail('it did not get ready in time'), START_MS);
    connection.ready.then(() => turn.resolve(connection)).catch(() => {});
    void connection.ready.catch(() => {}).finally(() => clearTimeout(startTimer));
    const end = await ended;
    connection.fail(end);
    this.#child = undefined;
    const why = `${connection.failure}: ${end}`;
    // Without effect if the gateway was ready.
    turn.reject(new GatewayGone(`the guest gateway does not start: ${why}`));
    this.#turn = newTurn();
    return why;
  }

  #spawn(): ChildProcess {
    const { command, args } = this.#command;
    return spawn(command, args, { cwd: '/', detached: true, env: {}, stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
  }
}

/**
 * Ends the gateway. In a jail it is a child of the started process, which has no right to end it when it ends itself.
 */
function kill(child: ChildProcess): void {
  try {
    for (const pid of childrenOf(child.pid)) process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
  child.kill('SIGKILL');
}

function childrenOf(pid: number | undefined): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    // The process has ended.
    return [];
  }
}

function newTurn(): Turn {
  const turn: Turn = Promise.withResolvers();
  // Perhaps nobody waits for the gateway when it does not start.
  turn.promise.catch(() => {});
  return turn;
}

/** Resolves when the process has ended and its channel is closed, with the reason and what it printed last. */
function endOf(child: ChildProcess): Promise<string> {
  let lastWords = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    lastWords = (lastWords + text).slice(-MAX_LAST_WORDS);
  });
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) => resolve(`${signal ?? `exit code ${code}`} ${lastWords.trim()}`.trim()));
  });
}

/** Whether a session may be opened by another try: the gateway ended, or nobody listens on the guest's socket yet. */
function mayRetry(error: unknown): boolean {
  if (error instanceof GatewayGone || error instanceof GuestNotListening) return true;
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

/** Rejects when `signal` aborts before the promise settles. */
async function inTime<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(new Error('the guest gateway does not answer'));
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  return Promise.race([promise, aborted.promise]).finally(() => signal.removeEventListener('abort', onAbort));
}
