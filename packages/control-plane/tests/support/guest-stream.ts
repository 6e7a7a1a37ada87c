// A guest's end of a stream, which the test plays. The real guest agent and the host agent's session behave the same.
import { Duplex } from 'node:stream';
import type { FakeStream } from './fake-host/guests.ts';

export type PlayedStream = FakeStream & {
  /** What the guest reads and writes. */
  guest: Duplex;
  /** Ends the stream with a result, after what the guest has written. */
  finish(result: unknown): void;
  /**
   * Ends the stream with an error. Only a ServiceError reaches the client as it is; any other error cuts the stream.
   */
  fail(error: Error): void;
};

/** Makes a stream for `FakeHost.guestStreams`. */
export function playStream(head: unknown = {}): PlayedStream {
  const [duplex, guest] = [new PipeEnd(), new PipeEnd()];
  duplex.connect(guest);
  guest.connect(duplex);
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  promise.catch(() => {});
  duplex.once('close', () => reject(new Error('The stream was cut.')));
  const finish = (result: unknown) => {
    resolve(result);
    guest.end();
  };
  const fail = (error: Error) => {
    reject(error);
    duplex.destroy(error);
  };
  return { head, duplex, result: promise, guest, finish, fail };
}

/** One end of a two-way pipe. When an end is destroyed, the other end is destroyed too and never ends. */
class PipeEnd extends Duplex {
  #other: PipeEnd | undefined;
  #onTaken: (() => void) | undefined;

  constructor() {
    super();
    this.on('error', () => {});
  }

  connect(other: PipeEnd): void {
    this.#other = other;
  }

  override _read(): void {
    const onTaken = this.#onTaken;
    this.#onTaken = undefined;
    onTaken?.();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (!this.#other || this.#other.push(chunk)) done();
    else this.#other.#onTaken = done;
  }

  override _final(done: () => void): void {
    this.#other?.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const isOver = this.readableEnded && this.writableFinished;
    if (!isOver) this.#other?.destroy();
    done(error);
  }
}
