// A name server for tests, over UDP and TCP, and the queries that machines send to it. It reads messages with
// dns-packet, so it does not share the mistakes of our own reader.
import { createSocket, type RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import dnsPacket from 'dns-packet';
import { FrameReader, framed } from '../../src/network/dns/frames.ts';

const DNS_PORT = 53;

/** The EDNS record in the query of a machine that can receive answers of up to 4096 bytes. */
export const EDNS: dnsPacket.OptAnswer = {
  type: 'OPT',
  name: '.',
  udpPayloadSize: 4096,
  extendedRcode: 0,
  ednsVersion: 0,
  flags: 0,
  flag_do: false,
  options: [],
};

export type Asked = { message: Buffer; over: 'udp' | 'tcp' };

export class NameServer {
  /** Every message that arrived, in order. */
  readonly asked: Asked[] = [];
  readonly #udp = createSocket('udp4');
  readonly #tcp = createServer();
  readonly #clients = new Set<Socket>();

  /** Answers with what `answersOf` returns for a message: none, one, or several messages. */
  static async on(address: string, answersOf: (asked: Asked) => readonly Buffer[]): Promise<NameServer> {
    const server = new NameServer();
    const answer = (asked: Asked) => {
      server.asked.push(asked);
      return answersOf(asked);
    };
    server.#udp.on('message', (message: Buffer, from: RemoteInfo) => {
      for (const one of answer({ message, over: 'udp' })) server.#udp.send(one, from.port, from.address);
    });
    server.#tcp.on('connection', (client) => {
      server.#clients.add(client.on('error', () => {}));
      const frames = new FrameReader(65_535);
      client.on('data', (chunk: Buffer) => {
        for (const message of frames.push(chunk))
          for (const one of answer({ message, over: 'tcp' })) client.write(framed(one));
      });
    });
    server.#udp.bind(DNS_PORT, address);
    server.#tcp.listen(DNS_PORT, address);
    await Promise.all([once(server.#udp, 'listening'), once(server.#tcp, 'listening')]);
    return server;
  }

  /** The names that were asked for. A message that dns-packet cannot read counts as `?`. */
  get names(): string[] {
    return this.asked.map(({ message }) => nameIn(message));
  }

  async close(): Promise<void> {
    for (const client of this.#clients) client.destroy();
    this.#tcp.close();
    await new Promise<void>((resolve) => this.#udp.close(resolve));
  }
}

export function nameIn(message: Buffer): string {
  try {
    return (
      dnsPacket
        .decode(message)
        .questions?.map(({ name }) => name)
        .join() || '?'
    );
  } catch {
    return '?';
  }
}

/** Makes an answer with one address. `change` overrides its fields, for example to make it wrong. */
export function addressAnswer(query: Buffer, address = '192.0.2.7', change: Partial<dnsPacket.Packet> = {}): Buffer {
  const { id, questions } = dnsPacket.decode(query);
  const name = questions?.[0]?.name ?? '';
  return dnsPacket.encode({
    type: 'response',
    id,
    flags: dnsPacket.RECURSION_DESIRED | dnsPacket.RECURSION_AVAILABLE,
    questions,
    answers: [{ type: 'A', name, ttl: 1, data: address }],
    ...change,
  });
}

/** A query for an address as a resolver sends it. */
export function nameQuery(name: string, change: Partial<dnsPacket.Packet> = {}): Buffer {
  return dnsPacket.encode({
    type: 'query',
    id: 0x1234,
    flags: dnsPacket.RECURSION_DESIRED,
    questions: [{ type: 'A', name }],
    ...change,
  });
}

/** Sends messages over one TCP connection and returns the answers that arrived before the other side closed it. */
export async function askOverTcp(address: string, from: string, messages: readonly Buffer[]): Promise<Buffer[]> {
  const socket = connect({ host: address, port: DNS_PORT, localAddress: from });
  const frames = new FrameReader(65_535);
  const answers: Buffer[] = [];
  socket.on('error', () => {});
  socket.on('data', (chunk: Buffer) => {
    answers.push(...frames.push(chunk));
    if (answers.length === messages.length) socket.end();
  });
  socket.write(Buffer.concat(messages.map(framed)));
  await once(socket, 'close');
  return answers;
}
