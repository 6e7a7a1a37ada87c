// Keeps the process of the name relay running (main.ts). The agent holds the bound sockets and never reads from them.
// When the relay ends, data from machines waits in the kernel for the next relay.
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type { Log } from '@sandbar/logging/log.ts';
import { endProcess } from '../../jail/end-process.ts';
import { jailedNode, type NodeCommand, SOURCES } from '../../jail/jailed-node.ts';
import { endOf, keepRunning } from '../../jail/keep-running.ts';
import { reservedUids } from '../../jail/uid-pool.ts';
import { closeNamePort, type NamePort, openNamePort } from './name-port.ts';
import { CHANNEL_FD, encodeNameServers } from './protocol.ts';

/** How long a relay may take until it is ready. It takes about 0.2 s. */
const START_MS = 30_000;
/** How often the agent looks for changed name servers and tells the relay. */
const FOLLOW_MS = 1000;

export type NameRelayOptions = {
  /** The data directory. */
  home: string;
  /** The IPv4 address on whose port 53 machines resolve names. */
  address: string;
  /** Returns the IPv4 or IPv6 addresses of the name servers, which are used in turn. At least one. */
  nameServers: () => readonly string[];
  log: Pick<Log, 'error'>;
};

export class NameRelay {
  readonly #options: NameRelayOptions;
  readonly #command: NodeCommand;
  readonly #port: NamePort;
  readonly #closing = new AbortController();
  readonly #follower: NodeJS.Timeout;
  readonly #kept: Promise<void>;
  readonly #ready = Promise.withResolvers<void>();
  #child: ChildProcess | undefined;
  /** The last line that was sent to the present relay. */
  #told = '';

  private constructor(options: NameRelayOptions, command: NodeCommand, port: NamePort) {
    this.#options = options;
    this.#command = command;
    this.#port = port;
    // Perhaps nobody waits for the relay when it does not start.
    this.#ready.promise.catch(() => {});
    this.#follower = setInterval(() => this.#tell(), FOLLOW_MS).unref();
    this.#kept = keepRunning(
      () => this.#live(),
      (why) => options.log.error({ why }, 'the name relay ended, and is started again'),
      this.#closing.signal,
    );
  }

  /**
   * Opens the port and starts the relay, without waiting until it is ready. Throws when the port is in use, or when a
   * tool is missing on this host.
   */
  static async start(options: NameRelayOptions): Promise<NameRelay> {
    const command = await relayCommand(options.home);
    try {
      return new NameRelay(options, command, openNamePort(options.address));
    } catch (error) {
      await command.remove();
      throw error;
    }
  }

  /** Resolves when the first relay can answer. Rejects with the reason when it does not start. */
  ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** The pid of the started command, which is an ancestor of the relay. Undefined while none runs. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Ends the relay and closes the port. */
  async close(): Promise<void> {
    this.#closing.abort();
    clearInterval(this.#follower);
    if (this.#child) endProcess(this.#child);
    await this.#kept;
    closeNamePort(this.#port);
    await this.#command.remove();
  }

  /** Runs one relay to its end, and returns why it ended. */
  async #live(): Promise<string> {
    const { command, args } = this.#command;
    const { udp, tcp } = this.#port;
    // The order is that of the descriptors in protocol.ts.
    const stdio = ['ignore', 'ignore', 'pipe', 'pipe', udp, tcp] as const;
    const child = spawn(command, args, { cwd: '/', detached: true, env: {}, stdio: [...stdio] });
    this.#child = child;
    const ended = endOf(child);
    const channel = channelOf(child);
    // Writing fails when the relay has just ended.
    channel.on('error', () => {});
    const startTimer = setTimeout(() => endProcess(child), START_MS);
    channel.once('readable', () => {
      clearTimeout(startTimer);
      this.#ready.resolve();
    });
    child.once('exit', () => channel.destroy());
    this.#told = '';
    this.#tell();
    const why = await ended;
    clearTimeout(startTimer);
    this.#child = undefined;
    // This has no effect if a relay was ready before.
    this.#ready.reject(new Error(`the name relay does not start: ${why}`));
    return why;
  }

  /** Tells the relay the host's name servers if it does not know them yet. */
  #tell(): void {
    const line = encodeNameServers(this.#options.nameServers());
    if (!this.#child || line === this.#told) return;
    channelOf(this.#child).write(line);
    this.#told = line;
  }
}

function channelOf(child: ChildProcess): Duplex {
  return child.stdio[CHANNEL_FD] as Duplex;
}

/** The path after which the relay's control group is named. */
export function relayPlace(home: string): string {
  return join(home, 'run/names');
}

/**
 * The command that starts the relay. The relay runs in the host's network namespace, because it asks the host's name
 * servers.
 */
function relayCommand(home: string): Promise<NodeCommand> {
  const code = [join(SOURCES, '../package.json'), import.meta.dirname];
  const program = { main: join(import.meta.dirname, 'main.ts'), code, dir: '/' };
  const { nameRelay: uid } = reservedUids(home);
  const jail = { name: 'names', place: relayPlace(home), uid, visible: [], network: 'host' } as const;
  return jailedNode(program, jail);
}
