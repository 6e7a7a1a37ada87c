// Turns Ctrl-C and other signals into a request to stop. One Ctrl-C reaches this process several times (from the
// terminal, from npm and from the script that runs it), so all signals within half a second count as one request.
const SAME_REQUEST_MS = 500;

export type StopSignals = {
  /** Aborts at the first request to stop. */
  stop: AbortSignal;
  /** Aborts at the second request to stop, after which nothing must be waited for. */
  hurry: AbortSignal;
  /** Resolves at the first request to stop. */
  wanted: Promise<void>;
};

export function onStopSignals(
  source: NodeJS.EventEmitter = process,
  now: () => number = () => performance.now(),
): StopSignals {
  const stop = new AbortController();
  const hurry = new AbortController();
  const { promise, resolve } = Promise.withResolvers<void>();
  let first: number | undefined;
  const onSignal = () => {
    if (first === undefined) {
      first = now();
      const reason = new Error('stopped by a signal');
      reason.name = 'StoppedBySignal';
      stop.abort(reason);
      resolve();
    } else if (now() - first > SAME_REQUEST_MS) {
      hurry.abort();
    }
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) source.on(signal, onSignal);
  return { stop: stop.signal, hurry: hurry.signal, wanted: promise };
}
