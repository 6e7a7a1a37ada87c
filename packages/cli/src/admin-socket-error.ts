// The error of requests over the operator's socket. It has its own file so that every command can recognize the error
// without loading the HTTP client, which is slow to load.

/** The socket cannot be opened or does not answer. The message says what to check. */
export class AdminSocketError extends Error {
  override readonly name = 'AdminSocketError';
}
