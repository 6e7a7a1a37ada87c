// The platform of browsers and edge runtimes. They have no files and no environment variables, so the caller passes the
// address and the key. Terminals work; raw connections to ports do not.
import { ConfigurationError, ConnectionError } from '../errors.ts';
import type { Platform } from './platform.ts';
import { openSocket } from './web-socket.ts';

export const platform: Platform = {
  runtime: 'web',
  readVariable: () => undefined,
  readCredentials: () => [],
  sendStream: sendBuffered,
  openSocket,
  toDuplex: () => {
    throw new ConfigurationError('a raw connection to a port needs Node, Deno or Bun');
  },
};

/** Collects the body first, because browsers send a stream only over HTTP/2. */
async function sendBuffered(
  url: string,
  { signal, ...init }: { method: string; headers: Record<string, string>; signal: AbortSignal | undefined },
  body: AsyncIterable<Uint8Array>,
): Promise<Response> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for await (const chunk of body) parts.push(chunk as Uint8Array<ArrayBuffer>);
  try {
    return await fetch(url, { ...init, body: new Blob(parts), signal: signal ?? null });
  } catch (error) {
    signal?.throwIfAborted();
    throw new ConnectionError(url, error);
  }
}
