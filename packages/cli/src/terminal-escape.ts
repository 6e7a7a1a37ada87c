// Finds the key sequence that leaves a terminal: `~.` at the beginning of a line, as in ssh.

const TILDE = 0x7e;
const DOT = 0x2e;
const LINE_ENDS: ReadonlySet<number> = new Set([0x0a, 0x0d]);

export type Keys = {
  /** The keys to send to the terminal. */
  bytes: Uint8Array;
  /** Whether the user leaves the terminal. Keys after the sequence are dropped. */
  leaves: boolean;
};

/**
 * Takes the keys of a user as they are pressed. Holds back a `~` at the beginning of a line until the next key: `~.`
 * leaves the terminal, `~~` sends one `~`, and with any other key both keys are sent.
 */
export class TerminalEscape {
  #isAtLineStart = true;
  #isHeld = false;

  take(keys: Uint8Array): Keys {
    const bytes: number[] = [];
    for (const key of keys) {
      if (this.#isHeld) {
        this.#isHeld = false;
        if (key === DOT) return { bytes: Uint8Array.from(bytes), leaves: true };
        bytes.push(TILDE);
        if (key === TILDE) {
          this.#isAtLineStart = false;
          continue;
        }
      } else if (this.#isAtLineStart && key === TILDE) {
        this.#isHeld = true;
        continue;
      }
      bytes.push(key);
      this.#isAtLineStart = LINE_ENDS.has(key);
    }
    return { bytes: Uint8Array.from(bytes), leaves: false };
  }
}
