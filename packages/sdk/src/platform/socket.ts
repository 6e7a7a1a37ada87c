// A WebSocket as the client uses it, whatever library or runtime carries it.

export type SocketTarget = {
  baseUrl: string;
  userAgent: string;
  /** The path with its query. */
  path: string;
  protocol: string;
  /** The header Authorization. Absent when the path has a credential. Browsers cannot send it. */
  authorization?: string;
};

export type SocketEvents = {
  onMessage: (data: Uint8Array, isBinary: boolean) => void;
  /** Called at each ping of the service. Browsers do not report pings. */
  onPing?: () => void;
  /** Called once, after the last message. */
  onClose: (code: number, reason: string) => void;
};

export type Socket = {
  readonly isOpen: boolean;
  readonly isPaused: boolean;
  /** Whether `onPing` is called, so that silence means a broken connection. */
  readonly hasPings: boolean;
  /** Sets who gets the events. Called once, before the first `resume`. */
  listen: (events: SocketEvents) => void;
  /** Calls `done` when the data was handed to the connection, or with the error. */
  send: (data: string | Uint8Array, done?: (error?: Error | null) => void) => void;
  pause: () => void;
  resume: () => void;
  close: (code: number) => void;
  /** Closes the connection at once, without the closing handshake where the platform allows that. */
  terminate: () => void;
};
