// What the client needs from the platform on which it runs. `#platform` in package.json resolves to node.ts for Node,
// Deno and Bun, and to web.ts for browsers and edge runtimes.
import type { PortConnection } from '../port-connection.ts';
import type { Socket, SocketTarget } from './socket.ts';

/** A credentials file: `text` is its content, or undefined when there is no such file. */
export type CredentialsFile = { path: string; text: string | undefined };

export type StreamHead = { method: string; headers: Record<string, string>; signal: AbortSignal | undefined };

export type Platform = {
  /** Name and version of the runtime for the User-Agent, such as `node/24.1.0`. */
  runtime: string;
  /** Reads an environment variable. */
  readVariable: (name: string) => string | undefined;
  /**
   * Reads the files that may contain an address and a key. A file earlier in the list takes precedence. Throws when a
   * file exists, but cannot be read.
   */
  readCredentials: () => CredentialsFile[];
  /** Sends a request whose body is a stream. Throws the body's error, ConnectionError, or the signal's reason. */
  sendStream: (url: string, head: StreamHead, body: AsyncIterable<Uint8Array>) => Promise<Response>;
  /** Opens a WebSocket and returns it paused. Throws SandbarError, ConnectionError, or the signal's reason. */
  openSocket: (target: SocketTarget, signal: AbortSignal | undefined) => Promise<Socket>;
  /** Wraps a socket in a stream of its bytes. */
  toDuplex: (socket: Socket, baseUrl: string) => PortConnection;
};
