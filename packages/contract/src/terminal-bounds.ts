// The limits of terminals. They are apart from the schemas of terminal.ts because the command line needs them only, and
// should not load the schema library for them.

/** The WebSocket subprotocol in which text frames are JSON control messages. */
export const TERMINAL_PROTOCOL = 'sandbar.terminal.v1';

export const TERMINAL_BOUNDS = {
  /** The most columns or rows of a terminal. */
  sizeMax: 1000,
  colsDefault: 80,
  rowsDefault: 24,
  /** Open terminals of one machine. One more is a 409. */
  perMachine: 64,
  /** How long a ticket is valid, seconds. The specification names about 30 seconds. */
  ticketSec: 30,
  /** How long a terminal lives while nobody is connected to it, seconds. The service can be configured otherwise. */
  idleSecDefault: 600,
  /** How much of its output a terminal keeps for clients that join it, bytes. */
  keptBytes: 256 * 1024,
  /** The longest message of a client, bytes. */
  messageBytes: 1024 * 1024,
  /** The most bytes of `command`, `env`, `cwd` and `user` together, written as JSON. */
  requestBytes: 64 * 1024,
} as const;

/**
 * Close codes of a terminal's WebSocket, besides 1000 (the program ended) and 1009 (a message is too long). A code of
 * 4000 or more is 4000 plus the HTTP status of the error. The reason has the error's code and sentence.
 */
export const TERMINAL_CLOSES = {
  ended: 1000,
  internalError: 1011,
  shuttingDown: 1012,
  /** The machine's host or the database does not answer. The terminal may still run. */
  unavailable: 1013,
  /** The client took no data for too long. The terminal still runs. */
  tooSlow: 4408,
} as const;
