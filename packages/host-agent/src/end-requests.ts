// Turns the ways to ask the agent to end into one signal: SIGTERM, SIGINT, or the end of its supervisor. The agent
// listens before it starts any other process. Without a listener, Node would end at once and leave what was started so
// far: QEMU processes, the bridge, and the packet filter's tables.

/** Returns a signal that aborts at the first request to end. Its reason is an Error that names the request. */
export function endRequests(source: NodeJS.EventEmitter = process): AbortSignal {
  const requested = new AbortController();
  const on = (event: string, message: string) => source.on(event, () => requested.abort(new Error(message)));
  on('SIGTERM', 'SIGTERM');
  on('SIGINT', 'SIGINT');
  on('disconnect', 'the supervisor is gone');
  return requested.signal;
}
