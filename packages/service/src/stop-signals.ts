// Ctrl-C and its kin. One key press reaches this process more than once (from the terminal, from npm, from the script
// that runs it), so what comes within half a second is one wish.
const SAME_WISH_MS = 500;

export type StopSignals = {
  /** Aborts at the first wish to stop. */
  stop: AbortSignal;
  /** Aborts at the second: do not wait. */
  hurry: AbortSignal;
  /** Resolves at the first. */
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
    } else if (now() - first > SAME_WISH_MS) {
      hurry.abort();
    }
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) source.on(signal, onSignal);
  return { stop: stop.signal, hurry: hurry.signal, wanted: promise };
}
