// Asks a name server one question. Each question has its own socket with a random port, and a random id, so that an
// attacker who does not see the question cannot forge its answer.
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { FrameReader, framed } from './frames.ts';
import { type Query, readAnswer, writeQuery } from './message.ts';

const DNS_PORT = 53;
const MAX_ANSWER_BYTES = 65_535;
/** After this time the resolver of a machine has usually asked again (resolv.conf(5), timeout). */
export const ANSWER_TIMEOUT_MS = 5000;

/**
 * A question under way. `answer` is the name server's answer for the machine, or undefined when the name server failed,
 * was silent for 5 s, or `end` was called. `end` may be called more than once.
 */
export type Asked = { answer: Promise<Buffer | undefined>; end(): void };

/** Asks over UDP. Messages that are no answer to the question are ignored. */
export function askOverUdp(server: string, query: Query): Asked {
  const id = randomInt(0x10000);
  const socket = createSocket(server.includes(':') ? 'udp6' : 'udp4');
  const { asked, finish } = begin(() => socket.close());
  socket.on('error', () => finish(undefined));
  socket.on('connect', () => socket.send(writeQuery(query, id)));
  socket.on('message', (message) => {
    const answer = readAnswer(message, query, id);
    if (answer) finish(answer);
  });
  // Answers from other addresses do not reach a connected socket.
  socket.connect(DNS_PORT, server);
  return asked;
}

/** Asks over TCP. */
export function askOverTcp(server: string, query: Query): Asked {
  const id = randomInt(0x10000);
  const socket = connect(DNS_PORT, server);
  const { asked, finish } = begin(() => socket.destroy());
  const frames = new FrameReader(MAX_ANSWER_BYTES);
  socket.on('error', () => finish(undefined));
  socket.on('close', () => finish(undefined));
  socket.on('data', (chunk) => {
    const [message] = frames.push(chunk);
    if (message) finish(readAnswer(message, query, id));
  });
  socket.write(framed(writeQuery(query, id)));
  return asked;
}

/** Makes a question that ends once: by its answer, an error, the time-out or the caller. */
function begin(close: () => void): { asked: Asked; finish: (answer: Buffer | undefined) => void } {
  const { promise, resolve } = Promise.withResolvers<Buffer | undefined>();
  let isOver = false;
  const finish = (answer: Buffer | undefined) => {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    close();
    resolve(answer);
  };
  const timer = setTimeout(finish, ANSWER_TIMEOUT_MS, undefined);
  return { asked: { answer: promise, end: () => finish(undefined) }, finish };
}
