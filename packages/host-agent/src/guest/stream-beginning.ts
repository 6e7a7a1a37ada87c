// Whether the guest has begun a stream, and what it may send before and after that. Job output and two-way streams have
// the same rules.
import { GuestProtocolError } from './guest-protocol-error.ts';

/** All functions throw {@link GuestProtocolError} for what the guest may not send now. */
export class StreamBeginning {
  #hasBegun = false;

  /** Handles the frame with which the guest begins the stream. */
  begin(status: number): void {
    if (this.#hasBegun) throw new GuestProtocolError(`the guest began a stream twice, with status ${status}`);
    this.#hasBegun = true;
  }

  /** Checks that the guest may refuse the stream. */
  refuse(status: number): void {
    if (this.#hasBegun) throw new GuestProtocolError(`the guest answered with ${status} after it had begun a stream`);
    if (status < 300) throw new GuestProtocolError(`the guest answered with ${status} and not with a stream`);
  }

  /** Checks that the guest may send the other frames of the stream. */
  expect(): void {
    if (!this.#hasBegun) throw new GuestProtocolError('the guest sent the frames of a stream that it had not begun');
  }
}
