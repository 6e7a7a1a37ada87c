// What the client needs of the platform that it runs on. `#platform` of package.json resolves to node.ts for Node, Deno
// and Bun, and to web.ts for browsers and edge runtimes.
import type { PortConnection } from '../port-connection.ts';
import type { Socket, SocketTarget } from './socket.ts';

/** A credentials file: `text` is its content, or undefined when there is no such file. */
export type CredentialsFile = { path: string; text: string | undefined };

export type StreamHead = { method: string; headers: Record<string, string>; signal: AbortSignal | undefined };

export type Platform = {
  /** Name and version of the runtime for the User-Agent, such as `node/24.1.0`. */
  runtime: string;
  /** A variable of the environment. */
  readVariable: (name: string) => string | undefined;
  /** The files that may have an address and a key; the first that exists is used. Throws when one cannot be read. */
  readCredentials: () => CredentialsFile[];
  /** Sends a body that is a stream. Throws the error of the body, ConnectionError, or the reason of the signal. */
  sendStream: (url: string, head: StreamHead, body: AsyncIterable<Uint8Array>) => Promise<Response>;
  /** Opens a WebSocket that is paused. Throws SandbarError, ConnectionError, or the reason of the signal. */
  openSocket: (target: SocketTarget, signal: AbortSignal | undefined) => Promise<Socket>;
  /** Makes a stream of the bytes of a socket. */
  toDuplex: (socket: Socket, baseUrl: string) => PortConnection;
};
