// The error of the operator's socket. It has a file of its own, because main.ts needs it but not the HTTP client, which
// is slow to load.

/** The socket cannot be opened or does not answer. The message says what to check. */
export class AdminSocketError extends Error {
  override readonly name = 'AdminSocketError';
}
