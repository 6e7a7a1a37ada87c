// The name relay: one process for each host, a child of the agent, without privileges (name-relay.ts). It reads the
// queries of all machines, so that no code that runs as root parses data from machines. It ends when the agent's end of
// the channel closes.
import { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { CHANNEL_FD, decodeNameServers, TCP_FD, UDP_FD } from './protocol.ts';
import { DnsRelay, listenOn } from './relay.ts';

const channel = new Socket({ fd: CHANNEL_FD, readable: true, writable: true });
for (const event of ['end', 'close', 'error'] as const) channel.on(event, () => process.exit(0));

let servers: readonly string[] = [];
const isTold = new Promise<void>((resolve) => {
  createInterface({ input: channel }).on('line', (line) => {
    servers = decodeNameServers(line);
    resolve();
  });
});
await isTold;
new DnsRelay(await listenOn({ udp: UDP_FD, tcp: TCP_FD }), {
  nameServers: () => servers,
  // The agent logs the last lines when the relay ends.
  onError: (error) => console.error(`a socket of the name relay failed: ${error.message}`),
});
channel.write('.');
