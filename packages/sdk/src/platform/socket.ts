// The WebSocket interface that the client uses. Each platform implements it.

export type SocketTarget = {
  baseUrl: string;
  userAgent: string;
  /** The path with its query. */
  path: string;
  protocol: string;
  /** The value of the header `Authorization`. Absent when the path has a ticket. Browsers cannot send this header. */
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
  /** Whether `onPing` is called for each ping. Only then does a long silence prove that the connection is broken. */
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
