// The connection to one terminal. It reconnects by itself, with growing pauses, until the program ends.
import type { TerminalExit, TerminalStart } from '@sandbar/contract/terminal.ts';
import { ApiProblem } from '../../api/client.ts';
import type { LinkCalls } from './link-calls.ts';
import { OutputPosition, type Piece } from './output-position.ts';

export type LinkState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** The connection is lost, and the link reconnects by itself. */
  | { kind: 'cut'; reason: string }
  | { kind: 'exited'; code: number | null; signal: string | null }
  /** The terminal ended while nobody was connected. */
  | { kind: 'gone' }
  | { kind: 'refused'; reason: string };

type LinkEvents = {
  onState: (state: LinkState) => void;
  onOutput: (piece: Piece) => void;
  /** This many bytes of output are lost, because the service keeps only the last 256 KiB. */
  onGap: (bytes: number) => void;
};

export type Size = { cols: number; rows: number };

/** A terminal to join. `seen`: how far an earlier page had its output; undefined when that is not known. */
export type Joined = { id: string; seen: number | undefined };

/** The pauses before further attempts, ms. The last one repeats. */
const PAUSES_MS = [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000];
/** After a connection of this length, the pauses start from the first one again, ms. */
const STABLE_MS = 5_000;
/** When the page joins a terminal that others used, output in this time after the connection counts as a replay, ms. */
const REPLAY_MS = 1_000;
/** The longest message, bytes. The service takes 1 MiB. */
const MESSAGE_BYTES = 64 * 1024;

const OPEN = 1;

export class TerminalLink {
  /** The id of the terminal. Undefined until the service has answered with it. */
  id: string | undefined;
  readonly #calls: LinkCalls;
  readonly #events: LinkEvents;
  readonly #position: OutputPosition;
  /** Whether the terminal is known to exist, because it was joined or a connection to it was open. */
  #exists: boolean;
  #size: Size | undefined;
  #socket: WebSocket | undefined;
  #pause = new AbortController();
  #isOver = false;

  constructor(calls: LinkCalls, events: LinkEvents, joined?: Joined) {
    this.#calls = calls;
    this.#events = events;
    this.id = joined?.id;
    this.#exists = joined !== undefined;
    this.#position = new OutputPosition(joined ? (joined.seen ?? Number.POSITIVE_INFINITY) : 0);
  }

  get seen(): number | undefined {
    return this.#position.seen;
  }

  /** Connects, and stays connected until the program ends or `leave` is called. */
  async run(): Promise<void> {
    for (let attempt = 0; !this.#isOver; attempt++) {
      const startedAt = performance.now();
      try {
        await this.#connectOnce();
      } catch (error) {
        if (this.#isOver) return;
        if (!isTransient(error)) return this.#end({ kind: 'refused', reason: messageOf(error) });
        this.#setState({ kind: 'cut', reason: messageOf(error) });
      }
      if (performance.now() - startedAt > STABLE_MS) attempt = 0;
      if (this.#isOver) return;
      this.#pause = new AbortController();
      await this.#calls.sleep(PAUSES_MS[attempt] ?? PAUSES_MS.at(-1) ?? 0, this.#pause.signal);
    }
  }

  /** Ends the pause before the next attempt. */
  retryNow(): void {
    this.#pause.abort();
  }

  /** Breaks the connection, so that it is made again. For use when the network has changed. */
  reconnect(): void {
    this.#socket?.close();
    this.retryNow();
  }

  /** Sends input. Input is dropped while there is no connection: keys that arrive much later can do harm. */
  write(bytes: Uint8Array<ArrayBuffer>): void {
    if (this.#socket?.readyState !== OPEN) return;
    for (let at = 0; at < bytes.length; at += MESSAGE_BYTES) this.#socket.send(bytes.subarray(at, at + MESSAGE_BYTES));
  }

  resize(size: Size): void {
    this.#size = size;
    if (this.#socket?.readyState === OPEN) this.#socket.send(JSON.stringify({ type: 'resize', ...size }));
  }

  /** Ends the connection. The terminal goes on in the machine. */
  leave(): void {
    this.#isOver = true;
    this.#socket?.close(1000);
    this.#pause.abort();
  }

  /** Makes one connection and resolves when it is closed. Throws ApiProblem. */
  async #connectOnce(): Promise<void> {
    if (this.id !== undefined && !(await this.#calls.listTerminals()).some(({ id }) => id === this.id)) {
      if (this.#exists) return this.#end({ kind: 'gone' });
      this.id = undefined;
    }
    const session = await this.#calls.createSession({
      ...(this.id === undefined ? {} : { terminal_id: this.id }),
      ...this.#size,
    });
    this.id = session.terminal_id;
    if (this.#isOver) return;
    const { code, reason } = await this.#use(this.#calls.openSocket(session));
    if (this.#isOver) return;
    const text = reason.replace(/^[a-z_]+: /, '') || 'The connection was cut.';
    if (code === 1009 || code === 4400) this.#end({ kind: 'refused', reason: text });
    else this.#setState({ kind: 'cut', reason: text });
  }

  /** Reads from a connection until it is closed. */
  #use(socket: WebSocket): Promise<{ code: number; reason: string }> {
    this.#socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('message', ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (this.#isOver) return;
      if (typeof data === 'string') this.#receiveMessage(data);
      else for (const piece of this.#position.take(new Uint8Array(data))) this.#events.onOutput(piece);
    });
    return new Promise((resolve) => {
      socket.addEventListener('close', ({ code, reason }) => {
        this.#socket = undefined;
        resolve({ code, reason });
      });
    });
  }

  #receiveMessage(text: string): void {
    const message = JSON.parse(text) as TerminalStart | TerminalExit;
    if (message.type === 'exit') this.#end({ kind: 'exited', code: message.code, signal: message.signal });
    if (message.type !== 'start') return;
    this.#exists = true;
    const lost = this.#position.start(message.offset);
    if (lost > 0) this.#events.onGap(lost);
    void this.#calls.sleep(REPLAY_MS).then(() => this.#position.allIsNew());
    if (this.#size) this.resize(this.#size);
    this.#setState({ kind: 'open' });
  }

  #end(state: LinkState): void {
    this.#isOver = true;
    this.#setState(state);
  }

  #setState(state: LinkState): void {
    this.#events.onState(state);
  }
}

/** Whether a later attempt may succeed. 409: the machine does not run now. */
const isTransient = (error: unknown): boolean =>
  error instanceof ApiProblem && (error.status === 0 || [409, 429].includes(error.status) || error.status >= 500);

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
