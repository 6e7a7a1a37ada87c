// A Node `Duplex` with flow control by credit in both directions. Each side may send an initial number of bytes, and
// then as many more as the receiver has read. So a side that does not read makes the other side wait, and little of a
// stream is in memory. Two-way streams with a guest (frame-duplex.ts) and with the gateway (gateway/remote-duplex.ts)
// are such streams.
import { Duplex } from 'node:stream';

/** Credit is granted in pieces of at least this many bytes, so that small pieces do not cost one frame each. */
const CREDIT_PIECE = 64 * 1024;
/** Most bytes that are sent at once. */
const PIECE_BYTES = 64 * 1024;

export type CreditedLine = {
  /** Allows the other side to send `bytes` more bytes. */
  grant(bytes: number): void;
  /** Sends bytes. */
  send(bytes: Buffer): void;
  /** Says that no more bytes follow. */
  sendEnd(): void;
  /** Called once, when nobody reads or writes the stream any more, also after its end. */
  drop(): void;
  /** Called with how much more of the credit is used by unread bytes; negative when some were read. */
  onUnread(cost: number): void;
};

type Unread = { bytes: Buffer; cost: number };

export class CreditedDuplex {
  readonly duplex: Duplex;
  /** The result of the stream, see `GuestStream`. */
  readonly result: Promise<string>;
  readonly #settle: { resolve: (text: string) => void; reject: (error: Error) => void };
  readonly #line: CreditedLine;
  readonly #sendCreditMax: number;
  #isOver = false;
  /** How much the other side may still send. */
  #credit: number;
  /** The cost of bytes that were read and for which this side has not granted credit again. */
  #owed = 0;
  #unread: Unread[] = [];
  #isReaderWaiting = false;
  /** How many bytes this side may still send. */
  #sendCredit: number;
  /** The rest of a write that waits for credit. */
  #waiting: { rest: Buffer; done: () => void } | undefined;

  /** `credit`: what the other side may send at first; `sendCredit`: how many bytes this side may send at first. */
  constructor(line: CreditedLine, credit: number, sendCredit: number) {
    this.#line = line;
    this.#credit = credit;
    this.#sendCredit = sendCredit;
    this.#sendCreditMax = sendCredit;
    const { promise, ...settle } = Promise.withResolvers<string>();
    promise.catch(() => {});
    this.result = promise;
    this.#settle = settle;
    this.duplex = new Duplex({
      read: () => this.#read(),
      write: (chunk: Buffer, _encoding, done) => this.#write(chunk, done),
      final: (done) => {
        if (!this.#isOver) this.#line.sendEnd();
        done();
      },
      destroy: (error, done) => {
        this.#drop();
        done(error);
      },
    });
    // The error is in `result` too, so a duplex whose error nobody handles must not end the process.
    this.duplex.on('error', () => {});
  }

  /** Adds bytes that arrived and that use up `cost` of the credit. Returns false when there was no credit for them. */
  receive(bytes: Buffer, cost: number): boolean {
    this.#credit -= cost;
    if (this.#credit < 0) return false;
    if (this.duplex.destroyed) return true;
    this.#line.onUnread(cost);
    this.#unread.push({ bytes, cost });
    if (this.#isReaderWaiting) this.#read();
    return true;
  }

  /** Allows this side to send more. Returns false when the other side grants more than it has received. */
  allow(bytes: number): boolean {
    this.#sendCredit += bytes;
    if (this.#sendCredit > this.#sendCreditMax) return false;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting) this.#write(waiting.rest, waiting.done);
    return true;
  }

  /** Ends the stream well. The reader first gets all bytes that have arrived. */
  end(result: string): void {
    this.#isOver = true;
    this.#settle.resolve(result);
    this.#releaseWriter();
    if (this.#isReaderWaiting) this.#read();
  }

  /** Ends the stream with an error, and destroys the duplex with it. */
  fail(error: Error): void {
    this.#isOver = true;
    this.#settle.reject(error);
    this.duplex.destroy(error);
  }

  #read(): void {
    this.#isReaderWaiting = true;
    for (;;) {
      const next = this.#unread.shift();
      if (!next) break;
      this.#line.onUnread(-next.cost);
      this.#giveBack(next.cost);
      if (this.duplex.push(next.bytes)) continue;
      this.#isReaderWaiting = false;
      return;
    }
    if (this.#isOver) this.duplex.push(null);
  }

  #giveBack(cost: number): void {
    this.#owed += cost;
    if (this.#owed < CREDIT_PIECE || this.#isOver) return;
    this.#credit += this.#owed;
    this.#line.grant(this.#owed);
    this.#owed = 0;
  }

  /** Sends as much as the other side has granted credit for. After the end of the stream, drops the bytes. */
  #write(chunk: Buffer, done: () => void): void {
    let rest = chunk;
    while (rest.length > 0 && this.#sendCredit > 0 && !this.#isOver) {
      const piece = rest.subarray(0, Math.min(PIECE_BYTES, this.#sendCredit));
      this.#sendCredit -= piece.length;
      this.#line.send(piece);
      rest = rest.subarray(piece.length);
    }
    if (rest.length > 0 && !this.#isOver) this.#waiting = { rest, done };
    else done();
  }

  #releaseWriter(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.done();
  }

  #drop(): void {
    this.#settle.reject(new Error('the stream was cut'));
    for (const { cost } of this.#unread) this.#line.onUnread(-cost);
    this.#unread = [];
    this.#releaseWriter();
    this.#line.drop();
  }
}
