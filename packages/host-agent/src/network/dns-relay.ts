// Relays name resolution for machines on the bridge. It passes messages to port 53 of the gateway unchanged to the
// host's own name servers, over UDP and TCP. It neither parses nor caches them, so machines can resolve whatever the
// host can resolve.
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { pipeline } from 'node:stream';
import { Shares } from './shares.ts';

const DNS_PORT = 53;
const QUERY_TIMEOUT_MS = 5000;
/**
 * Limits on concurrent queries: of all machines together, and of one machine. Further queries are dropped, and the
 * machine's resolver retries.
 */
const MAX_QUERIES = 1024;
export const MAX_QUERIES_OF_ONE = 32;
/** Limits on concurrent TCP connections, in the same way. Further connections are closed. */
const MAX_CONNECTIONS = 256;
export const MAX_CONNECTIONS_OF_ONE = 8;
/** RFC 768: source port 0 means that the sender expects no reply. */
const NO_REPLY_PORT = 0;

/** Running queries, each represented by the function that ends it. */
type Queries = Set<() => void>;

export type DnsRelay = { close(): Promise<void> };

/**
 * Listens on port 53 of `address` over UDP and TCP. `upstreams`: IPv4 or IPv6 addresses of name servers, used in turn.
 * Throws when the port is in use.
 */
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
    // A connection that is already closed has no remote address.
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

/** Each query gets its own socket. Its random source port keeps the answers of different queries apart. */
function relayQuery(
  udp: UdpSocket,
  query: Buffer,
  from: RemoteInfo,
  upstream: string,
  underWay: Queries,
  ended: () => void,
): void {
  const socket = createSocket(upstream.includes(':') ? 'udp6' : 'udp4');
  // This may run twice, because an error may follow the answer, and closing a socket twice throws.
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

/** Sends a datagram and ignores errors: resolvers expect that UDP packets can get lost. */
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

/**
 * Returns the addresses of the host's name servers. With systemd-resolved this is a local address that only the host
 * itself can query.
 */
export function hostNameServers(resolvConf = readFileSync('/etc/resolv.conf', 'utf8')): string[] {
  const found = [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].map((match) => match[1] ?? '');
  return found.length > 0 ? found : ['127.0.0.1'];
}
