// The clients of bench/waits.ts, in a process of their own. The first message from the parent says which event streams
// and which long polls to hold; each has a connection of its own. When a long poll is answered, the next one is sent on
// the same connection, until its job has ended. On each later message this sends back what was received so far.
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export type Wait = { path: string; key: string; kind: 'stream' | 'end' | 'output' };
export type Plan = { port: number; waits: Wait[] };
export type Received = { open: number; statuses: Record<string, number>; answers: number; streamBytes: number };

const PER_ADDRESS = 200;
/** How many connections are opened between two short pauses. */
const AT_ONCE = 100;
const WAIT_MS = 60_000;
const HEAD_END = '\r\n\r\n';
const received = { statuses: {} as Record<string, number>, answers: 0, streamBytes: 0 };

function request(socket: Socket, { path, key, kind }: Wait, offset: number): void {
  const query = kind === 'end' ? `wait_ms=${WAIT_MS}` : `wait_ms=${WAIT_MS}&offset=${offset}`;
  const target = kind === 'stream' ? path : `${path}?${query}`;
  const accept = kind === 'stream' ? 'accept: text/event-stream\r\n' : '';
  socket.write(`GET ${target} HTTP/1.1\r\nhost: x\r\n${accept}authorization: Bearer ${key}${HEAD_END}`);
}

function note(head: string): void {
  const status = head.slice(9, 12);
  received.statuses[status] = (received.statuses[status] ?? 0) + 1;
}

function stream(socket: Socket, wait: Wait): void {
  socket.once('data', (data) => note(data.toString('latin1')));
  socket.on('data', (data) => {
    received.streamBytes += data.length;
  });
  request(socket, wait, 0);
}

/** Sends long polls one after the other. Reads no chunked answers, which a page and a job never are. */
function poll(socket: Socket, wait: Wait): void {
  let text = '';
  socket.on('data', (data) => {
    text += data.toString('latin1');
    const headEnd = text.indexOf(HEAD_END);
    const length = Number(/^content-length: (\d+)/im.exec(text.slice(0, headEnd))?.[1]);
    if (headEnd < 0 || text.length < headEnd + HEAD_END.length + length) return;
    note(text);
    const isOk = text.startsWith('HTTP/1.1 200');
    const body = JSON.parse(text.slice(headEnd + HEAD_END.length));
    text = '';
    received.answers++;
    const isOver = wait.kind === 'end' ? body.status !== 'running' : body.eof;
    if (isOk && !isOver) request(socket, wait, body.next_offset);
  });
  request(socket, wait, 0);
}

process.once('message', async ({ port, waits }: Plan) => {
  const sockets: Socket[] = [];
  for (const [index, wait] of waits.entries()) {
    const localAddress = `127.0.1.${1 + Math.floor(index / PER_ADDRESS)}`;
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    socket.on('error', () => undefined);
    sockets.push(socket);
    if (wait.kind === 'stream') stream(socket, wait);
    else poll(socket, wait);
    if (index % AT_ONCE === AT_ONCE - 1) await delay(5);
  }
  process.on('message', () => {
    const open = sockets.filter((socket) => socket.readyState === 'open').length;
    process.send?.({ open, ...received } satisfies Received);
  });
  process.send?.('ready');
});
process.on('disconnect', () => process.exit(0));
