// Serves one client over standard input and output. Clients on the same computer start such a server as a process.

import type { Readable, Writable } from 'node:stream';
import { StdioServerTransport, serveStdio as serve } from '@modelcontextprotocol/server/stdio';
import type { Client } from '@sandbar/sdk/client.ts';
import { RunningCalls } from './running-calls.ts';
import { createServer } from './server.ts';
import { MESSAGE_BYTES, SETTLE_MS } from './transport-bounds.ts';

export type StdioOptions = {
  /** Default: the standard input and output of this process. Nothing else may write to `stdout`. */
  stdin?: Readable | undefined;
  stdout?: Writable | undefined;
  /** Called with errors that do not belong to a tool call, such as input that is not a message. */
  onError?: ((error: Error) => void) | undefined;
};

export type StdioServer = {
  /** Resolves when the connection has ended and its calls have cancelled their jobs. */
  closed: Promise<void>;
  /** Cancels the running calls, then ends the connection. Resolves when `closed` does. */
  close(): Promise<void>;
};

/** Serves until the client closes standard input or `close` is called. The tools use the API key of `client`. */
export function serveStdio(client: Client, options: StdioOptions = {}): StdioServer {
  const { stdin = process.stdin, stdout = process.stdout, onError } = options;
  const calls = new RunningCalls();
  const transport = new StdioServerTransport(stdin, stdout, { maxBufferSize: MESSAGE_BYTES });
  // Node 20 has no `Promise.withResolvers`.
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const handle = serve(() => createServer(client, calls), { transport, ...(onError ? { onerror: onError } : {}) });
  const onclose = transport.onclose;
  transport.onclose = () => {
    onclose?.();
    end();
  };
  const closed = ended.then(() => calls.settle(SETTLE_MS));
  return {
    closed,
    close: async () => {
      await calls.end(SETTLE_MS);
      await handle.close();
      end();
      await closed;
    },
  };
}
