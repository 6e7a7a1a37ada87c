// Client for QEMU's monitor protocol (QMP). Each command, reply and event is one JSON object on its own line.
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';

type QmpReply = { return?: unknown; error?: { class: string; desc: unknown }; id?: number };
type QmpEvent = { event: string; data?: Record<string, unknown> };

/** QEMU normally answers within milliseconds. This limit only ends commands that hang. */
const ANSWER_TIMEOUT_MS = 10_000;
/**
 * Longest line accepted, in characters. The longest legitimate answer is the 64 KiB console with every byte escaped.
 */
const MAX_LINE = 1024 * 1024;
/**
 * Limits on unanswered commands and on bytes that QEMU has not read yet. Beyond them QEMU is stuck or hostile, so the
 * connection is closed.
 */
const MAX_WAITING = 64;
const MAX_UNREAD = 1024 * 1024;

type Waiter = { resolve: (value: unknown) => void; reject: (error: Error) => void; timer: NodeJS.Timeout };

/** Emits `event` (name, data) for every QMP event, and `close` once when the connection has ended. */
export class QmpClient extends EventEmitter<{ event: [string, Record<string, unknown>]; close: [] }> {
  readonly #socket: Socket;
  readonly #timeoutMs: number;
  readonly #waiting = new Map<number, Waiter>();
  #nextId = 1;
  /** The beginning of a line whose newline has not arrived yet. */
  #partial = '';

  private constructor(socket: Socket, timeoutMs: number) {
    super();
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#closed());
    socket.setEncoding('utf8').on('data', (text: string) => this.#read(text));
  }

  /**
   * Takes a connected monitor socket and negotiates capabilities, which QEMU requires before any other command. Each
   * command may take `timeoutMs`. On failure it destroys the socket and throws.
   */
  static async open(socket: Socket, timeoutMs = ANSWER_TIMEOUT_MS): Promise<QmpClient> {
    const client = new QmpClient(socket, timeoutMs);
    try {
      await client.execute('qmp_capabilities');
      return client;
    } catch (error) {
      client.close();
      throw error;
    }
  }

  /**
   * Runs one command and returns its result. Rejects with QEMU's error text, after the timeout, or when the connection
   * closes.
   */
  execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) return reject(new Error(`QEMU's monitor is closed (${command})`));
      if (this.#waiting.size >= MAX_WAITING || this.#socket.writableLength > MAX_UNREAD) {
        this.#socket.destroy();
        return reject(new Error(`QEMU's monitor leaves too much unanswered (${command})`));
      }
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Error(`QEMU's monitor did not answer ${command} in time`));
      }, this.#timeoutMs);
      this.#waiting.set(id, { resolve, reject, timer });
      this.#socket.write(`${JSON.stringify({ execute: command, ...(args ? { arguments: args } : {}), id })}\n`);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(text: string): void {
    const lines = (this.#partial + text).split('\n');
    this.#partial = lines.pop() ?? '';
    for (const line of lines) this.#receive(line);
    if (this.#partial.length > MAX_LINE) this.#socket.destroy();
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
    if (!waiter) return;
    this.#waiting.delete(message.id);
    clearTimeout(waiter.timer);
    if (message.error) waiter.reject(new Error(`QEMU refused: ${textOf(message.error.desc)}`));
    else waiter.resolve(message.return);
  }

  #closed(): void {
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(new Error("QEMU's monitor closed"));
    }
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

/**
 * The error text of a reply. A compromised QEMU could send an object whose conversion to a string throws, so only
 * strings are used.
 */
function textOf(desc: unknown): string {
  return typeof desc === 'string' ? desc : 'no reason that can be read';
}
