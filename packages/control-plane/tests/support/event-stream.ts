// Reads server-sent events in tests, and lists the server's sockets, so that a test can see how much they buffer.
import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import type { ControlPlane } from '../../src/control-plane.ts';

export type OpenedStream = {
  status: number;
  /** The events that were received so far, without comments. */
  events: { id: number; data: string; eof: boolean }[];
  /** Resolves when the server ended the stream or its connection. */
  ended: Promise<void>;
  hasEnded: () => boolean;
  close(): void;
};

/** Opens a stream and collects its events as they arrive. */
export async function openStream(
  { address }: ControlPlane,
  path: string,
  headers: Record<string, string>,
): Promise<OpenedStream> {
  const closing = new AbortController();
  const response = await fetch(`http://${address.host}:${address.port}${path}`, {
    headers: { accept: 'text/event-stream', ...headers },
    signal: closing.signal,
  });
  const events: OpenedStream['events'] = [];
  let hasEnded = false;
  const read = async () => {
    let rest = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      const blocks = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const [, id, json] = /^id: (\d+)\ndata: (.*)$/.exec(block) ?? [];
        if (json === undefined) continue;
        const { data, eof } = JSON.parse(json) as { data: string; eof: boolean };
        events.push({ id: Number(id), data: Buffer.from(data, 'base64').toString(), eof });
      }
    }
  };
  const ended = read()
    .catch(() => undefined)
    .then(() => {
      hasEnded = true;
    });
  return { status: response.status, events, ended, hasEnded: () => hasEnded, close: () => closing.abort() };
}

const sockets = new Set<Socket>();
subscribe('net.server.socket', (message) => {
  const { socket } = message as { socket: Socket };
  sockets.add(socket);
  socket.once('close', () => sockets.delete(socket));
});

/** The connections to servers of this process that are open now, by the server's port. */
export const serverSockets = (port: number): Socket[] => [...sockets].filter(({ localPort }) => localPort === port);
