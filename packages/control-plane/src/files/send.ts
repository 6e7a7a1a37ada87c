// Answers a request with a machine's stream as its body. Once the status line is sent, an error can only be shown by
// breaking the connection, so a client must not take a broken body for a complete one: it never is.
import type { OutgoingHttpHeaders } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply } from 'fastify';
import type { App } from '../app.ts';
import type { MachineStream } from '../guest/stream.ts';
import { WholeBody } from './whole-body.ts';

/** Sends the status line and the headers, and takes the response over from Fastify. */
export function beginAnswer(reply: FastifyReply, status: number, headers: OutgoingHttpHeaders): void {
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) reply.raw.setHeader(name, value);
  }
  reply.hijack();
  reply.raw.writeHead(status, headers);
  reply.raw.flushHeaders();
}

/** Sends all bytes of the stream, which are `length` if that is not null. Breaks the connection if they are not complete. */
export async function sendBody(
  app: App,
  reply: FastifyReply,
  { duplex, result }: MachineStream,
  length: number | null,
): Promise<void> {
  duplex.end();
  try {
    await pipeline(duplex, new WholeBody(length, result), reply.raw);
  } catch (error) {
    app.log.info({ err: error }, 'a body from a machine broke off');
  }
}
