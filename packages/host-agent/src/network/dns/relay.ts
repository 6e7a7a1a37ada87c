// Relays name resolution for machines on the bridge, over UDP and TCP. It parses each query and sends the question to
// the host's own name servers, so machines can resolve whatever the host can resolve. It does not cache. It needs no
// privileges beyond its two sockets, which are handed to it. It runs in a process of its own (main.ts).
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { FrameReader, framed } from './frames.ts';
import { fitDatagram, MAX_QUERY_BYTES, type Query, readQuery } from './message.ts';
import { Rate } from './rate.ts';
import { Shares } from './shares.ts';
import { ANSWER_TIMEOUT_MS, type Asked, askOverTcp, askOverUdp } from './upstream.ts';

/**
 * Limits on concurrent queries: of all machines together, and of one machine. Further queries are dropped, and the
 * machine's resolver retries.
 */
export const MAX_QUERIES = 1024;
export const MAX_QUERIES_OF_ONE = 32;
/**
 * Limits on concurrent TCP connections: of all machines together, and of one machine. Further connections are closed.
 */
const MAX_CONNECTIONS = 256;
export const MAX_CONNECTIONS_OF_ONE = 8;
/**
 * Rate limit for the queries of one machine, over UDP and TCP together. A page in a browser needs some dozens at once.
 */
const QUERIES_PER_SEC = 100;
export const BURST_QUERIES = 300;
/** RFC 768: source port 0 means that the sender expects no reply. */
const NO_REPLY_PORT = 0;

/** Sockets that listen on the DNS port. */
export type RelaySockets = { udp: UdpSocket; tcp: Server };

export type RelayOptions = {
  /** Returns the IPv4 or IPv6 addresses of the name servers, which are used in turn. At least one. */
  nameServers: () => readonly string[];
  /** Called for errors of the two sockets. The relay continues. */
  onError: (error: Error) => void;
};

/** Makes listening sockets from bound descriptors. */
export async function listenOn(descriptors: { udp: number; tcp: number }): Promise<RelaySockets> {
  const udp = createSocket('udp4');
  const tcp = createServer();
  // With a descriptor the event may come before `bind` returns.
  const areListening = Promise.all([once(udp, 'listening'), once(tcp, 'listening')]);
  udp.bind({ fd: descriptors.udp });
  tcp.listen({ fd: descriptors.tcp });
  await areListening;
  return { udp, tcp };
}

export class DnsRelay {
  readonly #sockets: RelaySockets;
  readonly #nameServers: () => readonly string[];
  readonly #queries = new Shares(MAX_QUERIES, MAX_QUERIES_OF_ONE);
  readonly #connections = new Shares(MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE);
  readonly #rate = new Rate(QUERIES_PER_SEC, BURST_QUERIES);
  /** Questions under way, and connections of machines. */
  readonly #asked = new Set<Asked>();
  readonly #clients = new Set<Socket>();
  #turn = 0;

  constructor(sockets: RelaySockets, { nameServers, onError }: RelayOptions) {
    this.#sockets = sockets;
    this.#nameServers = nameServers;
    sockets.udp.on('message', (message, from) => this.#relayDatagram(message, from).catch(onError));
    sockets.tcp.on('connection', (client) => this.#accept(client));
    sockets.udp.on('error', onError);
    sockets.tcp.on('error', onError);
  }

  /** Closes the sockets and drops all queries. */
  async close(): Promise<void> {
    for (const asked of this.#asked) asked.end();
    for (const client of this.#clients) client.destroy();
    const { udp, tcp } = this.#sockets;
    await Promise.all([
      new Promise<void>((resolve) => udp.close(resolve)),
      new Promise<void>((resolve) => tcp.close(() => resolve())),
    ]);
  }

  async #relayDatagram(message: Buffer, from: RemoteInfo): Promise<void> {
    if (from.port === NO_REPLY_PORT || !this.#rate.take(from.address)) return;
    const read = readQuery(message);
    if (read === undefined) return;
    if ('refusal' in read) return sendAnswer(this.#sockets.udp, read.refusal, from);
    const answer = await this.#ask(askOverUdp, read.query, from.address);
    if (answer) sendAnswer(this.#sockets.udp, fitDatagram(answer, read.query), from);
  }

  /**
   * Asks the next name server. Returns undefined when the machine has its maximum of concurrent queries, or when there
   * is no answer.
   */
  async #ask(askOver: typeof askOverUdp, query: Query, owner: string): Promise<Buffer | undefined> {
    let asked: Asked | undefined;
    const place = this.#queries.take(owner, () => asked?.end());
    if (!place) return undefined;
    asked = askOver(this.#nextServer(), query);
    this.#asked.add(asked);
    const answer = await asked.answer;
    this.#asked.delete(asked);
    place.giveBack();
    return answer;
  }

  #nextServer(): string {
    const servers = this.#nameServers();
    return servers[this.#turn++ % servers.length] ?? '127.0.0.1';
  }

  #accept(client: Socket): void {
    // A connection that is already closed has no remote address.
    const owner = client.remoteAddress;
    const place = owner === undefined ? undefined : this.#connections.take(owner, () => client.destroy());
    if (owner === undefined || !place) {
      client.destroy();
      return;
    }
    this.#clients.add(client);
    client.on('error', () => {});
    client.once('close', () => {
      this.#clients.delete(client);
      place.giveBack();
    });
    void this.#relayConnection(client, owner).finally(() => client.destroy());
  }

  /** Answers the queries of a connection one after the other. A machine that is slow with its next query is cut off. */
  async #relayConnection(client: Socket, owner: string): Promise<void> {
    const frames = new FrameReader(MAX_QUERY_BYTES);
    const timer = setTimeout(() => client.destroy(), ANSWER_TIMEOUT_MS);
    try {
      for await (const chunk of client) {
        for (const message of frames.push(chunk)) {
          const answer = await this.#answerFrame(message, owner);
          if (answer === undefined) return;
          timer.refresh();
          if (!client.write(framed(answer))) await Promise.race([once(client, 'drain'), once(client, 'close')]);
          timer.refresh();
        }
      }
    } catch {
      // The machine closed the connection, or sent too long a message.
    } finally {
      clearTimeout(timer);
    }
  }

  /** Returns the answer to a message that came over TCP, or undefined when the connection is to be closed. */
  async #answerFrame(message: Buffer, owner: string): Promise<Buffer | undefined> {
    if (!this.#rate.take(owner)) return undefined;
    const read = readQuery(message);
    if (read === undefined) return undefined;
    return 'refusal' in read ? read.refusal : this.#ask(askOverTcp, read.query, owner);
  }
}

/** Sends a datagram and ignores errors: resolvers expect that UDP packets can get lost. */
export function sendAnswer(udp: UdpSocket, answer: Buffer, to: { address: string; port: number }): void {
  if (to.port !== NO_REPLY_PORT) udp.send(answer, to.port, to.address, () => {});
}
