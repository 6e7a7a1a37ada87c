// The error of the operator's socket, apart from its client, so that commands without the socket need not load that.

/** The socket cannot be used; the message says what to do. */
export class AdminSocketError extends Error {
  override readonly name = 'AdminSocketError';
}
