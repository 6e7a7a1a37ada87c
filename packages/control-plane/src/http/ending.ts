// Joins the reasons for which a stream or relay has to end to one signal. Unlike `AbortSignal.any`, the listeners can
// be removed, so long-lived signals such as that of a shutdown do not collect them.

/**
 * The end of an event stream when the service shuts down: clients should resume it after 250 ms. The connection ends
 * with the stream, so that no client sends its next request on it.
 */
export const RESUME_SOON = 'retry: 250\n\n';

/** A signal, and the error that its abort means for the client. */
export type Ending = readonly [signal: AbortSignal, reason: () => unknown];

/** `signal` is aborted with the reason of the first ending. `stop` removes the listeners. */
export function firstOf(endings: readonly Ending[]): { signal: AbortSignal; stop(): void } {
  const controller = new AbortController();
  const listeners = endings.map(([signal, reason]) => {
    const onAbort = () => controller.abort(reason());
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    return () => signal.removeEventListener('abort', onAbort);
  });
  const stop = () => {
    for (const remove of listeners) remove();
  };
  return { signal: controller.signal, stop };
}
