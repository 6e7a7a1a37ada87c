// The routes of the host API that pass calls and streams on to the guest agent of a machine. The agent does not look
// into their JSON: the control plane checks what a guest answers.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  decodeHeader,
  encodeHeader,
  GUEST_CALLS,
  GUEST_STREAM_HEADERS,
  type GuestCallName,
  type GuestStreamName,
  HostGuestCallParams,
  HostGuestStreamParams,
} from '@sandbar/contract/guest-calls.ts';
import { HOST_PATHS } from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import type { GuestStream } from '../guest/guest-stream.ts';
import { EarlyCollection } from './early-collection.ts';
import { probe } from './transport.ts';

/** The machines whose guests can be asked. `get` throws `not_found`. */
export type GuestMachines = {
  get(id: string): {
    /** Returns the JSON text of the guest's answer. `timeoutMs` in milliseconds. Throws the guest's refusal. */
    callGuest(name: GuestCallName, params: string, timeoutMs: number): Promise<string>;
    /** Throws the guest's refusal. */
    openStream(name: GuestStreamName, params: string): Promise<GuestStream>;
  };
};

const BYTES = 'application/octet-stream';
/** How often the agent checks that its client is still there while it reads nothing from it, in milliseconds. */
const PROBE_MS = 5_000;

export function addGuestRoutes(untyped: FastifyInstance, machines: GuestMachines): void {
  // The body of a stream goes to the guest as it arrives.
  untyped.addContentTypeParser(BYTES, (_request, payload, done) => done(null, payload));
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const collection = new EarlyCollection();

  server.post(HOST_PATHS.guestCall, { schema: { params: HostGuestCallParams } }, async (request, reply) => {
    const { id, name } = request.params;
    const params = JSON.stringify(request.body ?? {});
    const answer = await orBroken(machines.get(id).callGuest(name, params, GUEST_CALLS[name].timeoutMs));
    return reply.type('application/json; charset=utf-8').serializer(String).send(answer);
  });

  server.post(HOST_PATHS.guestStream, { schema: { params: HostGuestStreamParams } }, async (request, reply) => {
    const { id, name } = request.params;
    const header = request.headers[GUEST_STREAM_HEADERS.params];
    if (typeof header !== 'string')
      throw new ServiceError('validation_error', `a stream needs the header ${GUEST_STREAM_HEADERS.params}`);
    const stream = await orBroken(machines.get(id).openStream(name, decodeHeader(header)));
    reply.hijack();
    request.raw.on('data', collection.notePassed);
    stream.duplex.on('data', collection.notePassed);
    relay(stream, request.raw, reply.raw);
  });
}

/**
 * Turns every error that is no refusal into `host_unavailable`: the session with the guest broke, perhaps because its
 * machine is being stopped.
 */
function orBroken<T>(asked: Promise<T>): Promise<T> {
  return asked.catch((cause: unknown) => {
    if (cause instanceof ServiceError) throw cause;
    throw new ServiceError('host_unavailable', 'The connection to the machine broke. Retry.', {
      retryAfterSec: 2,
      cause,
    });
  });
}

/** Passes bytes both ways until the stream or the client's connection ends. */
function relay({ head, duplex, result }: GuestStream, request: IncomingMessage, response: ServerResponse): void {
  // Each way in which the stream breaks is also seen through `result` or on the connection.
  duplex.on('error', () => {});
  response.on('error', () => {});
  sendUp(request, duplex);
  response.once('close', () => {
    if (!response.writableFinished) duplex.destroy();
  });
  if (response.destroyed || request.socket.destroyed) duplex.destroy();
  response.writeHead(200, {
    'content-type': BYTES,
    [GUEST_STREAM_HEADERS.head]: encodeHeader(head),
    trailer: GUEST_STREAM_HEADERS.result,
  });
  response.flushHeaders();
  duplex.pipe(response, { end: false });
  const finish = (end: string) => {
    response.addTrailers({ [GUEST_STREAM_HEADERS.result]: encodeHeader(end) });
    response.end();
    duplex.destroy();
  };
  // At `end` all bytes of the guest have been passed on, and its result is there.
  duplex.once('end', () => {
    result.then((text) => finish(`{"result":${text}}`)).catch(() => {});
  });
  result.catch((error: unknown) => {
    if (!(error instanceof ServiceError)) response.destroy();
    else finish(JSON.stringify({ error: { code: error.code, detail: error.message } }));
  });
}

/** Passes the body of the request to the guest. A body that breaks off never ends the duplex. */
function sendUp(request: IncomingMessage, duplex: Duplex): void {
  request.on('error', () => {});
  request.pipe(duplex);
  // When the guest has ended the stream and takes nothing more, read and drop the rest of the body. A connection that
  // is not read would stay after the client has closed it.
  duplex.once('close', () => {
    request.unpipe(duplex);
    request.resume();
  });
  probeWhilePaused(request, duplex);
}

/**
 * While the guest takes no bytes, nothing is read from the connection, so nobody notices when the client closes it. So
 * probe it from time to time.
 */
function probeWhilePaused(request: IncomingMessage, duplex: Duplex): void {
  let timer: NodeJS.Timeout | undefined;
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
  };
  request.on('pause', () => {
    timer ??= setInterval(() => probe(request.socket), PROBE_MS).unref();
  });
  request.on('resume', stop);
  request.once('close', stop);
  duplex.once('close', stop);
}
