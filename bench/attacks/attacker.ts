// One attack of bench/attacks.ts, in a process of its own: it opens all connections of its message and holds them until
// the process is ended. Sends back how many were open at the end, and the statuses of the answers.
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export type Attack = {
  port: number;
  /** How many connections. They come from several loopback addresses, which count as different clients. */
  count: number;
  /** What each connection sends; without requests it says nothing. Connections take the requests in turn. */
  requests: string[];
  /** Whether the answers are read. */
  isRead: boolean;
};

const PER_ADDRESS = 200;
/** How many connections are opened at a time. */
const AT_ONCE = 100;

process.once('message', async ({ port, count, requests, isRead }: Attack) => {
  const sockets: Socket[] = [];
  const statuses: Record<string, number> = {};
  for (let index = 0; index < count; index++) {
    const localAddress = `127.0.1.${1 + Math.floor(index / PER_ADDRESS)}`;
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    socket.on('error', () => undefined);
    sockets.push(socket);
    const request = requests[index % requests.length];
    if (request !== undefined) socket.write(request);
    // The beginning of the answer is always read, for its status.
    socket.once('data', (data) => {
      const status = data.toString('latin1').slice(9, 12);
      statuses[status] = (statuses[status] ?? 0) + 1;
      if (isRead) socket.resume();
      else socket.pause();
    });
    if (index % AT_ONCE === AT_ONCE - 1) await delay(5);
  }
  process.on('message', () => {
    const open = sockets.filter((socket) => socket.readyState === 'open').length;
    process.send?.({ open, statuses });
  });
  process.send?.('ready');
});
process.on('disconnect', () => process.exit(0));
