// What the metrics learn about the connections to the database.

/** The number of connections: all, idle ones and the most that may be open. `waiting`: who waits for a connection. */
export type PoolSize = { total: number; idle: number; waiting: number; most: number };

export type QueryFailure = 'unavailable' | 'full' | 'constraint' | 'other';

export type DatabaseWatch = {
  /** The pool was opened. `read` returns its size at any time. */
  opened(read: () => PoolSize): void;
  /** A statement failed. */
  failed(reason: QueryFailure): void;
};
