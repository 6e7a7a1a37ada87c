// One attack of bench/attacks.ts, in a process of its own. It opens the connections that the first message from its
// parent asks for, and holds them until the process ends. On each message it sends back how many are open and which
// HTTP statuses it has received.
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export type Attack = {
  port: number;
  /** How many connections to open. They come from several loopback addresses, which count as different clients. */
  count: number;
  /** The requests, assigned to the connections in turn. Without requests, the connections send nothing. */
  requests: string[];
  /** Whether to read the answers to their end. */
  isRead: boolean;
};

const PER_ADDRESS = 200;
/** How many connections are opened between two short pauses. */
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
    // Read the first bytes of the answer in any case, because they contain the status.
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
