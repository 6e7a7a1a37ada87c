// A client of QEMU's monitor protocol: commands in, answers and events out, one JSON object a line.
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';

type QmpReply = { return?: unknown; error?: { class: string; desc: unknown }; id?: number };
type QmpEvent = { event: string; data?: Record<string, unknown> };

/** QEMU answers in milliseconds; this only ends what hangs. */
const ANSWER_TIMEOUT_MS = 10_000;
/** Characters of a line: the longest answer is the console's 64 KiB, each byte escaped. */
const MAX_LINE = 1024 * 1024;
/** Commands without an answer, and bytes of commands that QEMU has not read: with more, it is stuck or hostile. */
const MAX_WAITING = 64;
const MAX_UNREAD = 1024 * 1024;

type Waiter = { resolve: (value: unknown) => void; reject: (error: Error) => void; timer: NodeJS.Timeout };

/** Emits `event` (name, data) for every QMP event and `close` once. */
export class QmpClient extends EventEmitter<{ event: [string, Record<string, unknown>]; close: [] }> {
  readonly #socket: Socket;
  readonly #timeoutMs: number;
  readonly #waiting = new Map<number, Waiter>();
  #nextId = 1;
  /** The start of a line whose end is on its way. */
  #partial = '';

  private constructor(socket: Socket, timeoutMs: number) {
    super();
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#closed());
    socket.setEncoding('utf8').on('data', (text: string) => this.#read(text));
  }

  /** Takes a connected monitor socket and enables commands; when that fails, the socket is destroyed. */
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

  /** Runs one command; rejects with QEMU's own description, or when no answer comes. */
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

/** What a taken-over QEMU sends may be an object that cannot be made text. */
function textOf(desc: unknown): string {
  return typeof desc === 'string' ? desc : 'no reason that can be read';
}
