// Answers a request with a machine's stream as its body. After the status line was sent, an error can only be shown by
// breaking the connection. So a client must treat a body that broke off as incomplete.
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

/**
 * Sends all bytes of the stream: exactly `length` bytes, unless that is null. Breaks the connection when bytes are
 * missing.
 */
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
