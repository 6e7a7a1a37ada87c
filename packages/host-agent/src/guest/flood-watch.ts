// HTTP/2 has many frames that carry nothing: pings, settings, window updates, unknown types. A guest that sends them
// without end would keep the host busy for ever, in calls or between them, so a session is ended when what it received
// beside the data that was read grows too fast. Counted in bytes, below HTTP/2, so that no kind of frame is forgotten.

const CHECK_EVERY_MS = 1000;
/** What a session may receive beside data in a second, without end. An honest guest needs less than a tenth. */
const FREE_BYTES_PER_CHECK = 256 * 1024;
/** A session's window may lie received and unread (8 MiB), and a burst of frames may come on top. */
const MAX_OVERHEAD_BYTES = 12 * 1024 * 1024;

export type Traffic = {
  /** All bytes received so far. */
  received: () => number;
  /** The bytes of answers that were read so far. */
  carried: () => number;
};

type Watched = Traffic & { overhead: number; seen: number; onFlood: () => void };

const watched = new Set<Watched>();
let timer: NodeJS.Timeout | undefined;

/** Calls `onFlood` once if the session is flooded. Returns what ends the watch. */
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
