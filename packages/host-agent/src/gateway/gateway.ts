// Keeps the guest gateway running: starts it, and starts it again when it ends. When it ends, all sessions with guests
// close, and their owners open new ones (machines/guest-link.ts). Jobs go on meanwhile in their machines.
import { type ChildProcess, spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Guest, GuestAddress, GuestConnector } from '../guest/guest.ts';
import { endProcess } from '../jail/end-process.ts';
import { endOf, keepRunning } from '../jail/keep-running.ts';
import { type GatewayCommand, gatewayCommand } from './command.ts';
import { GatewayConnection, GatewayGone, GuestNotListening } from './connection.ts';
import { placeSocket } from './guest-socket.ts';
import { CHANNEL_FD } from './protocol.ts';
import { RemoteGuest } from './remote-guest.ts';

/** How long a new gateway may take to get ready. It normally takes about 0.5 s. */
const START_MS = 30_000;
/** Pause between two attempts to open a session, for example while nobody listens on the guest's socket yet. */
const RETRY_MS = 3;

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
  /** Resolves to the connection to the running gateway. While no gateway runs, resolves when the next one is ready. */
  #turn: Turn = newTurn();

  private constructor(options: GatewayOptions, command: GatewayCommand) {
    this.#options = options;
    this.#command = command;
    this.#kept = keepRunning(
      () => this.#live(),
      (why) => options.log.error({ why }, 'the guest gateway ended, and is started again'),
      this.#closing.signal,
    );
  }

  /** Starts the gateway, without waiting until it is ready. Throws when a tool is missing on this host. */
  static async start(options: GatewayOptions): Promise<Gateway> {
    return new Gateway(options, await gatewayCommand(options.home, options.dir, options.isRoot));
  }

  /** Resolves when sessions can be opened. Rejects with the reason when the gateway does not start. */
  async ready(): Promise<void> {
    await this.#turn.promise;
  }

  /**
   * The pid of the started command; in a jail this process is an ancestor of the gateway. Undefined while no gateway
   * runs.
   */
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
    if (this.#child) endProcess(this.#child);
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

  /** Runs one gateway to its end, and returns why it ended. */
  async #live(): Promise<string> {
    const turn = this.#turn;
    const child = this.#spawn();
    this.#child = child;
    const ended = endOf(child);
    const connection = new GatewayConnection(child.stdio[CHANNEL_FD] as Duplex, () => endProcess(child));
    const startTimer = setTimeout(() => connection.fail('it did not get ready in time'), START_MS);
    connection.ready.then(() => turn.resolve(connection)).catch(() => {});
    void connection.ready.catch(() => {}).finally(() => clearTimeout(startTimer));
    const end = await ended;
    connection.fail(end);
    this.#child = undefined;
    const why = `${connection.failure}: ${end}`;
    // Has no effect if the gateway got ready, because the promise is already resolved then.
    turn.reject(new GatewayGone(`the guest gateway does not start: ${why}`));
    this.#turn = newTurn();
    return why;
  }

  #spawn(): ChildProcess {
    const { command, args } = this.#command;
    return spawn(command, args, { cwd: '/', detached: true, env: {}, stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
  }
}

function newTurn(): Turn {
  const turn: Turn = Promise.withResolvers();
  // If the gateway does not start and nobody waits for it, the rejection must not count as unhandled.
  turn.promise.catch(() => {});
  return turn;
}

/**
 * Whether to try again to open a session: the gateway ended, or the guest's socket does not exist or nobody listens on
 * it yet.
 */
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
