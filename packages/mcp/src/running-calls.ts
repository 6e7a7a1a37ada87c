// Keeps track of the running tool calls. When the server ends, it aborts them and waits for them, because an aborted
// call still has to end its job or destroy its machine.
import { setTimeout as delay, setImmediate as tick } from 'node:timers/promises';
import { ToolError } from './tool-errors.ts';

export class RunningCalls {
  readonly #calls = new Set<Promise<unknown>>();
  readonly #end = new AbortController();

  /** Aborted when the server ends. */
  get signal(): AbortSignal {
    return this.#end.signal;
  }

  /** Returns `call` and remembers it until it ends. */
  track<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call);
    const forget = () => this.#calls.delete(call);
    call.then(forget, forget);
    return call;
  }

  /** Aborts all calls, and resolves when their results are sent or after `timeoutMs`. */
  async end(timeoutMs: number): Promise<void> {
    const advice = 'Commands that the call waited for were killed. Call again when the MCP server runs again.';
    this.#end.abort(new ToolError('shutting_down', 'The MCP server is shutting down.', advice));
    await this.settle(timeoutMs);
    // Each result is sent just after its call has ended, so wait one more turn of the event loop.
    await tick();
  }

  /** Resolves when all calls have ended, or after `timeoutMs`. */
  async settle(timeoutMs: number): Promise<void> {
    const limit = new AbortController();
    const isOver = delay(timeoutMs, undefined, { signal: limit.signal }).catch(() => undefined);
    await Promise.race([Promise.allSettled(this.#calls), isOver]);
    limit.abort();
  }
}
