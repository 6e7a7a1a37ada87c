// A guest's end of a stream, which the test plays. The real guest agent and the host agent's session behave the same.
import { type Duplex, duplexPair } from 'node:stream';
import type { FakeStream } from './fake-host.ts';

export type PlayedStream = FakeStream & {
  /** What the guest reads and writes. */
  guest: Duplex;
  /** Ends the stream with a result, after what the guest has written. */
  finish(result: unknown): void;
  /** Ends the stream with an error. Only a ServiceError reaches the client as it is; any other error cuts the stream. */
  fail(error: Error): void;
};

/** Makes a stream for `FakeHost.guestStreams`. */
export function playStream(head: unknown = {}): PlayedStream {
  const [duplex, guest] = duplexPair();
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  promise.catch(() => {});
  guest.on('error', () => {});
  duplex.on('error', () => {});
  duplex.once('close', () => {
    reject(new Error('The stream was cut.'));
    guest.destroy();
  });
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
