// A two-way stream between the host and a guest agent: terminal, file content, archive, watch or port. The guest
// agent's README describes how such a stream begins and ends.
import type { Duplex } from 'node:stream';

export type GuestStream = {
  /**
   * What the guest says about the stream before the first byte, as JSON text. The guest may be hostile: check its
   * shape.
   */
  head: string;
  /**
   * The bytes of both directions. `end()` tells the guest that it has got all bytes. `destroy()` cuts the stream, and
   * the guest can tell a cut from an end. The readable side ends only when the guest has ended the stream well;
   * otherwise the duplex is destroyed with the error of `result`.
   */
  duplex: Duplex;
  /**
   * The result of the stream, as JSON text. Rejects with the guest's `ServiceError`, or with another error when the
   * stream was cut. A rejection that nobody handles does no harm.
   */
  result: Promise<string>;
};
