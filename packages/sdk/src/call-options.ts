// What every call of the client takes.

export type CallOptions = {
  /** Ends the call: it throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /**
   * How long the call may take in all, with its retries, in ms; then it throws TimeoutError. Default: `timeoutMs` of the
   * client. Uploads, streams and calls that wait for a command have no default, because they take as long as they take.
   */
  timeoutMs?: number | undefined;
};

/** Picks these options out of the larger options of a call. */
export function callOptions({ signal, timeoutMs }: CallOptions): CallOptions {
  return { signal, timeoutMs };
}
