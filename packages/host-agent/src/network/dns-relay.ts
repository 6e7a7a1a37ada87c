// Name resolution for machines on the bridge: messages to the gateway's port 53 are passed to the host's own name
// servers as they are, over UDP and TCP. Nothing is parsed or kept, so whatever the host can resolve, machines can.
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { pipeline } from 'node:stream';
import { Shares } from './shares.ts';

const DNS_PORT = 53;
const QUERY_TIMEOUT_MS = 5000;
/** Queries under way at once, of all machines and of one; one more is dropped, and the resolver in it asks again. */
const MAX_QUERIES = 1024;
export const MAX_QUERIES_OF_ONE = 32;
/** Connections at once, likewise; one more is closed. */
const MAX_CONNECTIONS = 256;
export const MAX_CONNECTIONS_OF_ONE = 8;
/** RFC 768: a datagram from port 0 wants no answer. */
const NO_REPLY_PORT = 0;

/** The queries under way, each by what ends it. */
type Queries = Set<() => void>;

export type DnsRelay = { close(): Promise<void> };

/** Listens on `address:53`. `upstreams`: IPv4 or IPv6 addresses, asked in turn. */
export async function startDnsRelay(address: string, upstreams: readonly string[]): Promise<DnsRelay> {
  const udp = createSocket('udp4');
  const underWay: Queries = new Set();
  const queryShares = new Shares(MAX_QUERIES, MAX_QUERIES_OF_ONE);
  const connectionShares = new Shares(MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE);
  let turn = 0;
  const nextUpstream = () => upstreams[turn++ % upstreams.length] ?? '127.0.0.1';
  udp.on('message', (query, from) => {
    if (from.port === NO_REPLY_PORT || !queryShares.take(from.address)) return;
    relayQuery(udp, query, from, nextUpstream(), underWay, () => queryShares.giveBack(from.address));
  });
  const tcp = createServer((client) => {
    // Gone already, it has no address any more.
    const owner = client.remoteAddress;
    if (owner === undefined || !connectionShares.take(owner)) {
      client.destroy();
      return;
    }
    client.once('close', () => connectionShares.giveBack(owner));
    relayConnection(client, nextUpstream());
  });
  udp.bind(DNS_PORT, address);
  tcp.listen(DNS_PORT, address);
  await Promise.all([once(udp, 'listening'), once(tcp, 'listening')]).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EADDRINUSE') throw error;
    throw new Error(
      `Port ${DNS_PORT} of ${address}, where machines resolve names, is in use: set SANDBAR_SUBNET to another network, ` +
        'or let the name server that listens on every address of this host listen on its own only',
    );
  });
  return {
    async close() {
      for (const end of underWay) end();
      tcp.close();
      await new Promise<void>((resolve) => udp.close(resolve));
    },
  };
}

/** A socket of its own for each query: its random port is what tells answers apart. */
function relayQuery(
  udp: UdpSocket,
  query: Buffer,
  from: RemoteInfo,
  upstream: string,
  underWay: Queries,
  ended: () => void,
): void {
  const socket = createSocket(upstream.includes(':') ? 'udp6' : 'udp4');
  // Closing a socket twice throws, and an error may follow the answer.
  const end = () => {
    clearTimeout(timer);
    if (!underWay.delete(end)) return;
    socket.close();
    ended();
  };
  const timer = setTimeout(end, QUERY_TIMEOUT_MS);
  underWay.add(end);
  socket.on('error', end);
  socket.on('connect', () => socket.send(query));
  socket.once('message', (answer) => {
    sendAnswer(udp, answer, from);
    end();
  });
  socket.connect(DNS_PORT, upstream);
}

/** Sends a datagram. One that cannot be sent is lost, which is what a resolver expects of UDP. */
export function sendAnswer(udp: UdpSocket, answer: Buffer, to: { address: string; port: number }): void {
  if (to.port !== NO_REPLY_PORT) udp.send(answer, to.port, to.address, () => {});
}

function relayConnection(client: Socket, upstream: string): void {
  const server = connect(DNS_PORT, upstream);
  client.setTimeout(QUERY_TIMEOUT_MS, () => client.destroy());
  const done = () => {};
  pipeline(client, server, done);
  pipeline(server, client, done);
}

/** Name servers of the host; behind systemd-resolved its local stub, which only the host itself can ask. */
export function hostNameServers(resolvConf = readFileSync('/etc/resolv.conf', 'utf8')): string[] {
  const found = [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].map((match) => match[1] ?? '');
  return found.length > 0 ? found : ['127.0.0.1'];
}
