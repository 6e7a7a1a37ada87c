// The options that every call of the client takes.

export type CallOptions = {
  /** When this signal is aborted, the call ends and throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /**
   * The time limit of the whole call with its retries, ms. After that the call throws TimeoutError. Default: `timeoutMs`
   * of the client. Uploads, streams and calls that wait for a command have no limit by default, because they may take
   * any time.
   */
  timeoutMs?: number | undefined;
};

/** Picks these options out of the larger options of a call. */
export function callOptions({ signal, timeoutMs }: CallOptions): CallOptions {
  return { signal, timeoutMs };
}
