// A client of QEMU's monitor protocol: commands in, answers and events out, one JSON object a line.
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';

type QmpReply = { return?: unknown; error?: { class: string; desc: string }; id?: number };
type QmpEvent = { event: string; data?: Record<string, unknown> };

/** Emits `event` (name, data) for every QMP event and `close` once. */
export class QmpClient extends EventEmitter<{ event: [string, Record<string, unknown>]; close: [] }> {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #nextId = 1;

  private constructor(socket: Socket) {
    super();
    this.#socket = socket;
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#closed());
    createInterface({ input: socket })
      .on('line', (line) => this.#receive(line))
      .on('error', () => socket.destroy());
  }

  /** Takes a connected monitor socket and enables commands. */
  static async open(socket: Socket): Promise<QmpClient> {
    const client = new QmpClient(socket);
    await client.execute('qmp_capabilities');
    return client;
  }

  /** Runs one command; rejects with QEMU's own description, or when the monitor closes first. */
  execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) return reject(new Error(`QEMU's monitor is closed (${command})`));
      this.#waiting.set(id, { resolve, reject });
      this.#socket.write(`${JSON.stringify({ execute: command, ...(args ? { arguments: args } : {}), id })}\n`);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(line: string): void {
    const message = parseLine(line);
    if (!message) {
      this.#socket.destroy();
      return;
    }
    if (message.event !== undefined) this.emit('event', message.event, message.data ?? {});
    if (message.id === undefined) return;
    const waiter = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error) waiter?.reject(new Error(`QEMU refused: ${message.error.desc}`));
    else waiter?.resolve(message.return);
  }

  #closed(): void {
    for (const { reject } of this.#waiting.values()) reject(new Error("QEMU's monitor closed"));
    this.#waiting.clear();
    this.emit('close');
  }
}

function parseLine(line: string): (QmpReply & Partial<QmpEvent>) | undefined {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
