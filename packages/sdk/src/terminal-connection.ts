// The client of one terminal. When its connection breaks, it connects again by itself. The service numbers the bytes of
// output, so the client yields every byte exactly once.
import type {
  TerminalExit,
  TerminalSession,
  TerminalSessionCreate,
  TerminalStart,
} from '@sandbar/contract/terminal.ts';
import { TERMINAL_CLOSES } from '@sandbar/contract/terminal-bounds.ts';
import { toBytes, toText } from './bytes.ts';
import type { Socket } from './platform/socket.ts';
import { sleep } from './retry.ts';
import { settleLater } from './settle-later.ts';
import { type CreateSession, connect, connectFirst, isPassing, RECONNECT_MS } from './terminal-attempts.ts';
import type { Transport } from './transport.ts';

export type TerminalEvents = {
  /** Called when the connection breaks. Input then waits for the next connection. */
  onDisconnect?: ((reason: string) => void) | undefined;
  onReconnect?: (() => void) | undefined;
  /**
   * Called when `bytes` bytes of output are lost. The terminal keeps only the last 256 KiB of its output, and this client
   * was further behind.
   */
  onGap?: ((bytes: number) => void) | undefined;
};

type Options = TerminalEvents & { signal: AbortSignal | undefined };
type Size = { cols: number; rows: number };

/** While more than this many bytes of output wait for the caller, the client does not read from the service. */
const WAITING_BYTES = 64 * 1024;
/** The longest message that the client sends, bytes. */
const MESSAGE_BYTES = 64 * 1024;
/** A connection on which nothing arrives for this long counts as broken, ms. The service sends a ping every 15 s. */
const SILENCE_MS = 50_000;
/** How long the service may take to answer the close of a connection, ms. */
const CLOSE_MS = 2_000;

/**
 * A terminal in a machine. Iterate over it to read its output; the iteration ends when the program ends, or after
 * `leave`. The iteration throws an error when the terminal cannot be reached any more.
 */
export class TerminalConnection implements AsyncIterable<Uint8Array> {
  /** Other clients can join the terminal with this id. */
  readonly id: string;
  /** How the program ended. Undefined after `leave`. Rejects with the same error as the iteration. */
  readonly exit: Promise<TerminalExit | undefined>;

  readonly #transport: Transport;
  readonly #createSession: CreateSession;
  readonly #options: Options;
  /** Aborted when the caller leaves. */
  readonly #leaving = new AbortController();
  readonly #settle: { resolve(exit: TerminalExit | undefined): void; reject(error: unknown): void };
  /** Output that the caller has not read yet. */
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  /** The position of the next byte of output that was not received yet. Undefined before the first connection. */
  #position: number | undefined;
  /** A new connection may repeat output. This many of its next bytes were received before, and are skipped. */
  #repeated = 0;
  #size: Partial<Size>;
  /** The size that the service knows. */
  #knownSize: Partial<Size>;
  #socket: Socket | undefined;
  #exit: TerminalExit | undefined;
  #isOver = false;
  #failure: unknown;
  /** Called at the next change: new output, a new connection or the end. */
  #onChange: Set<() => void> = new Set();
  #writing: Promise<void> = Promise.resolve();
  readonly #onAbort = () => this.leave();

  /** Opens or joins a terminal. Throws SandbarError, ConnectionError, and the reason of an aborted signal. */
  static async open(
    transport: Transport,
    createSession: CreateSession,
    request: TerminalSessionCreate,
    options: Options,
  ): Promise<TerminalConnection> {
    const signal = options.signal ?? new AbortController().signal;
    const { session, socket } = await connectFirst(transport, createSession, request, signal);
    const terminal = new TerminalConnection(transport, createSession, session, request, options);
    void terminal.#run(socket);
    return terminal;
  }

  private constructor(
    transport: Transport,
    createSession: CreateSession,
    { terminal_id }: TerminalSession,
    { cols, rows }: TerminalSessionCreate,
    options: Options,
  ) {
    this.id = terminal_id;
    this.#transport = transport;
    this.#createSession = createSession;
    this.#options = options;
    this.#size = { ...(cols === undefined ? {} : { cols }), ...(rows === undefined ? {} : { rows }) };
    this.#knownSize = this.#size;
    const { promise, resolve, reject } = settleLater<TerminalExit | undefined>();
    this.exit = promise;
    this.#settle = { resolve, reject };
    // Prevents an unhandled rejection when the caller does not use `exit`. The iteration throws the same error.
    promise.catch(() => undefined);
    if (options.signal?.aborted) this.leave();
    else options.signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /**
   * Sends input, in the order of the calls. Without a connection, it waits for the next one. Resolves when the input was
   * handed to the connection. If the connection breaks then, input that was on its way is lost. Resolves without effect
   * when the terminal has ended.
   */
  write(input: string | Uint8Array): Promise<void> {
    const bytes = toBytes(input);
    this.#writing = this.#writing.then(() => this.#write(bytes));
    return this.#writing;
  }

  /** Changes the size of the terminal. With several clients the last change counts. */
  resize(cols: number, rows: number): void {
    this.#size = { cols, rows };
    if (this.#socket?.isOpen) this.#sendSize(this.#socket);
  }

  /** Ends the connection. The terminal keeps running in the machine. */
  leave(): void {
    this.#end();
    this.#leaving.abort();
    closeSoon(this.#socket);
  }

  /** Yields the output. Use only one iteration at a time, because each byte goes to only one of them. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      const bytes = this.#waiting.shift();
      if (bytes) {
        this.#waitingBytes -= bytes.length;
        if (this.#waitingBytes <= WAITING_BYTES) this.#socket?.resume();
        yield bytes;
      } else if (!this.#isOver) {
        await this.#change();
      } else if (this.#failure !== undefined) {
        throw this.#failure;
      } else {
        return;
      }
    }
  }

  /** Uses one connection after another until the program ends, the caller leaves, or no new connection can be made. */
  async #run(first: Socket): Promise<void> {
    const { onDisconnect, onReconnect } = this.#options;
    let socket = first;
    try {
      for (;;) {
        const { code, reason } = await this.#use(socket);
        if (this.#exit !== undefined || this.#isOver) return this.#end();
        if (isOwnFault(code)) throw refusedBy(code, reason);
        onDisconnect?.(reason === '' ? 'the connection broke' : reason);
        socket = await this.#reconnect();
        onReconnect?.();
      }
    } catch (error) {
      this.#end(error);
    }
  }

  /** Reads from a connection until it is closed. */
  async #use(socket: Socket): Promise<{ code: number; reason: string }> {
    const { promise, resolve } = settleLater<{ code: number; reason: string }>();
    if (this.#isOver) closeSoon(socket);
    let lastAt = performance.now();
    const watchdog = setInterval(() => {
      const isSilent = performance.now() - lastAt > SILENCE_MS;
      if (isSilent && socket.hasPings && !socket.isPaused) socket.terminate();
    }, SILENCE_MS / 4);
    unref(watchdog);
    const note = () => {
      lastAt = performance.now();
    };
    socket.listen({
      onPing: note,
      onMessage: (data, isBinary) => {
        note();
        if (isBinary) this.#receive(data, socket);
        else this.#receiveMessage(parse(toText(data)));
      },
      onClose: (code, reason) => {
        clearInterval(watchdog);
        this.#socket = undefined;
        resolve({ code, reason });
      },
    });
    this.#socket = socket;
    if (this.#size !== this.#knownSize) this.#sendSize(socket);
    if (this.#waitingBytes <= WAITING_BYTES) socket.resume();
    this.#changed();
    return promise;
  }

  #receive(data: Uint8Array, socket: Socket): void {
    const fresh = data.subarray(Math.min(this.#repeated, data.length));
    this.#repeated -= data.length - fresh.length;
    if (fresh.length === 0 || this.#isOver) return;
    this.#position = (this.#position ?? 0) + fresh.length;
    this.#waiting.push(fresh);
    this.#waitingBytes += fresh.length;
    if (this.#waitingBytes > WAITING_BYTES) socket.pause();
    this.#changed();
  }

  #receiveMessage(message: TerminalStart | TerminalExit | undefined): void {
    if (message?.type === 'exit') this.#exit = message;
    if (message?.type !== 'start') return;
    const position = this.#position ?? message.offset;
    this.#position = Math.max(position, message.offset);
    this.#repeated = Math.max(0, position - message.offset);
    if (message.offset > position) this.#options.onGap?.(message.offset - position);
  }

  /** Tries to connect again until the time for retries is over, then throws the last error. */
  async #reconnect(): Promise<Socket> {
    const { signal } = this.#leaving;
    const brokenAt = performance.now();
    for (;;) {
      try {
        const size = this.#size;
        const session = await this.#createSession({ terminal_id: this.id, ...size }, signal);
        this.#knownSize = size;
        return await connect(this.#transport, session, signal);
      } catch (error) {
        if (this.#isOver || !isPassing(error)) throw error;
        if (performance.now() + RECONNECT_MS > brokenAt + this.#transport.retryForMs) throw error;
        await sleep(RECONNECT_MS, signal);
      }
    }
  }

  async #write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += MESSAGE_BYTES) {
      while (!this.#isOver && !this.#socket?.isOpen) await this.#change();
      const socket = this.#socket;
      if (this.#isOver || !socket) return;
      const piece = bytes.subarray(at, at + MESSAGE_BYTES);
      await new Promise<void>((resolve) => socket.send(piece, () => resolve()));
    }
  }

  #sendSize(socket: Socket): void {
    this.#knownSize = this.#size;
    socket.send(JSON.stringify({ type: 'resize', ...this.#size }));
  }

  #end(failure?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    this.#failure = failure;
    if (failure === undefined) this.#settle.resolve(this.#exit);
    else this.#settle.reject(failure);
    this.#changed();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#onChange.add(resolve));
  }

  #changed(): void {
    for (const resolve of this.#onChange) resolve();
    this.#onChange.clear();
  }
}

/** Whether the service closed the connection because this client sent something invalid. Then do not connect again. */
const isOwnFault = (code: number): boolean => code === 1009 || code === 4400;

const refusedBy = (code: number, reason: string): Error =>
  new Error(`the service closed the terminal (${code}): ${reason}`);

/** Returns undefined for invalid JSON. The caller ignores unknown types, so that a newer service may send them. */
function parse(text: string): TerminalStart | TerminalExit | undefined {
  try {
    return JSON.parse(text) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Closes a connection. If the service does not answer in time, terminates it. */
function closeSoon(socket: Socket | undefined): void {
  if (!socket) return;
  socket.resume();
  socket.close(TERMINAL_CLOSES.ended);
  unref(setTimeout(() => socket.terminate(), CLOSE_MS));
}

/** Lets the process exit while the timer runs. In a browser a timer is a number, and this does nothing. */
function unref(timer: ReturnType<typeof setTimeout>): void {
  if (typeof timer === 'object') timer.unref();
}
