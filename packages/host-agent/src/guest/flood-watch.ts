// Ends sessions with guests that flood the host. HTTP/2 has many frames without data: pings, settings, window updates,
// unknown types. A hostile guest could keep the host busy with them for ever. So a session is ended when it receives
// too many bytes that are not response data. All bytes are counted at the socket, so no kind of frame is missed. Data
// in tiny frames is as bad, because Node handles each frame on its own, so small pieces of data are counted too.

const CHECK_EVERY_MS = 100;
/**
 * How many bytes other than response data a session may receive per second. An honest guest needs 60 KB for 100 MB of
 * output.
 */
const FREE_BYTES_PER_SECOND = 128 * 1024;
const FREE_BYTES_PER_CHECK = (FREE_BYTES_PER_SECOND * CHECK_EVERY_MS) / 1000;
/**
 * A session is ended when its bytes above the allowed rate add up to more than this. When the host cancels a request,
 * the buffers between guest and host may still hold data of the response. This data no longer counts as response data,
 * so the limit leaves room for it.
 */
const MAX_OVERHEAD_BYTES = 1024 * 1024;
/** Pieces below this size count as small. */
const SMALL_PIECE_BYTES = 1024;
/**
 * How many small pieces a session may receive per second, and at once after a pause. The limit is above what an honest
 * guest sends: 16 jobs that all print line by line send 3,200 pieces a second (guest-agent/internal/api/stream.go).
 * Node takes 10 to 30 microseconds for each piece.
 */
const SMALL_PIECES_PER_SECOND = 4000;

const watches = new Set<FloodWatch>();
let timer: NodeJS.Timeout | undefined;

export class FloodWatch {
  readonly #received: () => number;
  readonly #onFlood: () => void;
  readonly #now: () => number;
  #carried = 0;
  #overhead = 0;
  #seen = 0;
  #smallPiecesLeft = SMALL_PIECES_PER_SECOND;
  #refilledAt: number;

  /**
   * Watches a session until {@link end}. `received` returns how many bytes its socket has received so far. Calls
   * `onFlood` once if the guest floods the session. `now`: a clock in ms.
   */
  constructor(received: () => number, onFlood: () => void, now = () => performance.now()) {
    this.#received = received;
    this.#onFlood = onFlood;
    this.#now = now;
    this.#refilledAt = now();
    watches.add(this);
    timer ??= setInterval(() => {
      for (const watch of watches) watch.check();
    }, CHECK_EVERY_MS).unref();
  }

  /** Counts a piece of a response body. Call it for each piece that arrives, even if nobody reads the body. */
  onPiece(bytes: number): void {
    this.#carried += bytes;
    if (bytes >= SMALL_PIECE_BYTES) return;
    if (--this.#smallPiecesLeft > 0) return;
    const now = this.#now();
    const more = ((now - this.#refilledAt) * SMALL_PIECES_PER_SECOND) / 1000;
    this.#smallPiecesLeft = Math.min(SMALL_PIECES_PER_SECOND, more);
    this.#refilledAt = now;
    if (more < 1) this.#flooded();
  }

  /** Compares the bytes that were not response data with the allowed rate. */
  check(): void {
    const now = this.#received() - this.#carried;
    this.#overhead = Math.max(0, this.#overhead + now - this.#seen - FREE_BYTES_PER_CHECK);
    this.#seen = now;
    if (this.#overhead > MAX_OVERHEAD_BYTES) this.#flooded();
  }

  end(): void {
    watches.delete(this);
    if (watches.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  #flooded(): void {
    if (!watches.has(this)) return;
    this.end();
    this.#onFlood();
  }
}
