// Ends sessions with guests that flood the host. HTTP/2 has many frames without data: pings, settings, window updates,
// unknown types. A hostile guest could keep the host busy with them for ever. So a session is ended when it receives
// too many bytes that are not response data. All bytes are counted at the socket, so no kind of frame is missed.

const CHECK_EVERY_MS = 1000;
/**
 * How many bytes other than response data a session may receive per second. An honest guest needs less than a tenth.
 */
const FREE_BYTES_PER_CHECK = 256 * 1024;
/**
 * A session is ended when its bytes above the allowed rate add up to more than this. Up to 8 MiB (the session's window)
 * may be data that the host has not read yet; the rest is for bursts of frames.
 */
const MAX_OVERHEAD_BYTES = 12 * 1024 * 1024;

export type Traffic = {
  /** How many bytes the session's socket has received so far. */
  received: () => number;
  /** How many bytes of response bodies the host has read so far. */
  carried: () => number;
};

type Watched = Traffic & { overhead: number; seen: number; onFlood: () => void };

const watched = new Set<Watched>();
let timer: NodeJS.Timeout | undefined;

/** Watches a session and calls `onFlood` once if it is flooded. Returns a function that ends the watch. */
export function watchForFlood(traffic: Traffic, onFlood: () => void): () => void {
  const entry = { ...traffic, overhead: 0, seen: 0, onFlood };
  watched.add(entry);
  timer ??= setInterval(check, CHECK_EVERY_MS).unref();
  return () => {
    watched.delete(entry);
    if (watched.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

function check(): void {
  for (const entry of watched) {
    const now = entry.received() - entry.carried();
    entry.overhead = Math.max(0, entry.overhead + now - entry.seen - FREE_BYTES_PER_CHECK);
    entry.seen = now;
    if (entry.overhead > MAX_OVERHEAD_BYTES) {
      watched.delete(entry);
      entry.onFlood();
    }
  }
}
