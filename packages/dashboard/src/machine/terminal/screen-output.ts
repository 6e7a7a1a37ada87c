// Writes the output of a terminal to its screen, with bounded memory.
import type { Terminal } from '@xterm/xterm';
import type { Piece } from './output-position.ts';

/** When more than this waits for the screen, further output is skipped, so that memory stays bounded. */
const WAITING_BYTES = 4 * 1024 * 1024;

/** Leaves the alternate screen, and turns off mouse reports, bracketed paste and other modes of the program. */
const MODES_OFF = '\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[!p\r\n';

export class ScreenOutput {
  /** Whether xterm is reading replayed output, so its replies must not reach the shell. */
  isReplay = false;
  readonly #screen: Terminal;
  #waitingBytes = 0;
  #skippedBytes = 0;

  constructor(screen: Terminal) {
    this.#screen = screen;
  }

  show({ bytes, isReplay }: Piece): void {
    if (this.#waitingBytes > WAITING_BYTES) {
      this.#skippedBytes += bytes.length;
      return;
    }
    if (isReplay) {
      this.#screen.write('', () => {
        this.isReplay = true;
      });
    }
    this.#waitingBytes += bytes.length;
    this.#screen.write(bytes, () => {
      if (isReplay) this.isReplay = false;
      this.#waitingBytes -= bytes.length;
      if (this.#waitingBytes > 0 || this.#skippedBytes === 0) return;
      this.note(`${this.#skippedBytes} bytes of output came too fast and were skipped`);
      this.#skippedBytes = 0;
    });
  }

  /** Shows a message of the dashboard between lines of output. */
  note(text: string): void {
    this.#screen.write(`\x1b[0m\r\n[${text}]\r\n`);
  }

  /** Resets the modes that the last program may have left on. */
  endModes(): void {
    this.#screen.write(MODES_OFF);
  }
}
