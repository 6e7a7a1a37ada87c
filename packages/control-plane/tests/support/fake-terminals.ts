// Terminals in memory, in place of those in the machines of a fake host. A terminal runs no program. A test writes its
// output and reads its input.
import { type Duplex, duplexPair } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type OpenTerminal, TERMINAL_BOUNDS } from '@sandbar/contract/terminal.ts';
import type { FakeStream } from './fake-host/guests.ts';
import type { FakeHost } from './fake-host.ts';

type Exit = { exit_code: number | null; signal: string | null };
type Connection = { guest: Duplex; end: (exit: Exit) => void; cut: (error: unknown) => void };

export class FakeTerminal {
  readonly wanted: OpenTerminal;
  readonly connections = new Set<Connection>();
  size: { cols: number; rows: number };
  /** All output so far. */
  output = Buffer.alloc(0);
  /** The first 4 KiB of input, of all connections. */
  input = '';
  /** How many bytes all connections together sent, and took. */
  readonly taken = { input: 0, output: 0 };

  constructor(wanted: OpenTerminal) {
    this.wanted = wanted;
    this.size = { cols: wanted.cols, rows: wanted.rows };
  }

  /** Writes output to all connections. Resolves when all of them took it. */
  async print(text: string | Buffer): Promise<void> {
    const bytes = Buffer.from(text);
    this.output = Buffer.concat([this.output, bytes]);
    await Promise.all([...this.connections].map((connection) => this.#write(connection, bytes)));
  }

  /** Ends the program. */
  exit(exit: Partial<Exit>): void {
    for (const { end } of this.connections) end({ exit_code: null, signal: null, ...exit });
  }

  /** Cuts all connections with an error. */
  cut(error: unknown): void {
    for (const { cut } of this.connections) cut(error);
  }

  attach(): FakeStream {
    const [near, guest] = duplexPair({ highWaterMark: 16 * 1024 });
    const { promise: result, resolve, reject } = Promise.withResolvers<unknown>();
    result.catch(() => {});
    const cut = (error: unknown) => {
      reject(error);
      near.destroy(error instanceof Error ? error : undefined);
    };
    const end = (exit: Exit) => {
      resolve(exit);
      guest.end();
    };
    const connection = { guest, end, cut };
    near.on('error', () => {});
    near.once('close', () => {
      reject(new Error('cut'));
      guest.destroy();
      this.connections.delete(connection);
    });
    guest.on('error', () => {});
    guest.on('data', (bytes: Buffer) => {
      this.taken.input += bytes.length;
      if (this.input.length < 4096) this.input += bytes;
    });
    this.connections.add(connection);
    const offset = Math.max(0, this.output.length - TERMINAL_BOUNDS.keptBytes);
    if (offset < this.output.length) void this.#write(connection, this.output.subarray(offset));
    return { head: { offset, cols: this.size.cols, rows: this.size.rows }, duplex: near, result };
  }

  async #write({ guest }: Connection, bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length && !guest.destroyed; at += 4096) {
      const piece = bytes.subarray(at, at + 4096);
      await new Promise<void>((resolve) => {
        guest.once('close', resolve);
        guest.write(piece, () => {
          guest.removeListener('close', resolve);
          resolve();
        });
      });
      this.taken.output += piece.length;
    }
  }
}

/** The terminals of all machines. */
export class FakeTerminals {
  readonly all = new Map<string, FakeTerminal>();
  /** Names of the calls so far. */
  readonly calls: string[] = [];
  /** What the next calls and streams of these names throw. */
  readonly faults = new Map<string, unknown>();

  constructor({ guestCalls, guestStreams }: FakeHost) {
    for (const name of ['terminals.open', 'terminals.list', 'terminals.resize', 'terminals.end'] as const) {
      guestCalls[name] = (_machineId, params) => this.#call(name, params);
    }
    guestStreams['terminals.attach'] = (_machineId, params: { id: string }) => {
      this.#note('terminals.attach');
      return this.#get(params.id).attach();
    };
  }

  #call(name: string, params: OpenTerminal): unknown {
    this.#note(name);
    if (name === 'terminals.open') {
      const open = [...this.all.keys()].length;
      if (!this.all.has(params.id) && open >= TERMINAL_BOUNDS.perMachine) {
        throw new ServiceError('conflict', 'The machine has 64 terminals, which is the most.');
      }
      if (!this.all.has(params.id)) this.all.set(params.id, new FakeTerminal(params));
      return { id: params.id };
    }
    if (name === 'terminals.list') {
      const terminals = [...this.all].map(([id, terminal]) => ({
        id,
        created_at: '2026-01-02T03:04:05.006007008Z',
        connections: terminal.connections.size,
        ...terminal.size,
        command: terminal.wanted.command ?? ['/bin/sh', '-l'],
        unknown: 'field',
      }));
      return { terminals };
    }
    const terminal = this.#get(params.id);
    if (name === 'terminals.resize') terminal.size = { cols: params.cols, rows: params.rows };
    if (name === 'terminals.end') {
      terminal.exit({ signal: 'SIGHUP' });
      this.all.delete(params.id);
    }
    return {};
  }

  #note(name: string): void {
    this.calls.push(name);
    const fault = this.faults.get(name);
    this.faults.delete(name);
    if (fault !== undefined) throw fault;
  }

  #get(id: string): FakeTerminal {
    const terminal = this.all.get(id);
    if (!terminal) throw new ServiceError('not_found', 'There is no such terminal.');
    return terminal;
  }
}
