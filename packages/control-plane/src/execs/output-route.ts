// The HTTP endpoint for a job's output. It returns one page as JSON, or all pages as server-sent events.
import type { Writable } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS, ExecOutput, ExecOutputQuery, ExecParams } from '@sandbar/contract/exec.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { LongRequests } from '../http/disconnect.ts';
import { Places } from '../http/places.ts';
import type { Caller } from '../http/route-config.ts';
import type { JobWaits } from './job-waits.ts';
import { findOutput } from './output.ts';
import { OutputStreams } from './stream.ts';

const EVENT_STREAM = 'text/event-stream';

export function addOutputRoute(untyped: FastifyInstance, app: App, waits: JobWaits): void {
  const requests = new LongRequests(app.closing);
  const streams = new OutputStreams(app);
  const places = new Places(app.config.bounds.streamsPerAccount, 'event streams', app.metrics.streams.labels('event'));
  untyped.server.on('request', () => streams.noteRequest());
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/execs/:exec_id/output',
    schema: {
      operationId: 'getExecOutput',
      summary: 'Read the output of a job',
      description:
        'A page of bytes from an absolute offset; concatenated pages are the exact bytes. Any byte can be read again, ' +
        'also after the machine stopped, unless newer jobs needed the room (410 output_expired). With ' +
        'Accept: text/event-stream the same objects come as events until eof; the id of an event is its next_offset, ' +
        'so that Last-Event-ID resumes. An event has at most 32 KiB of output. An account has a bounded number of open ' +
        'event streams; one more is 429. A stream ends when its credential does.',
      tags: ['Exec'],
      params: ExecParams,
      querystring: ExecOutputQuery,
      response: { 200: ExecOutput },
    },
    config: {
      access: 'read',
      errors: ['host_unavailable', 'output_expired', 'rate_limited'],
      producesEvents: true,
      examples: {
        response: {
          exec_id: '019b7c20-1a2b-7c3d-8e4f-5a6b7c8d9e0f',
          stream: 'stdout',
          offset: 0,
          data: 'aGVsbG8K',
          next_offset: 6,
          total_bytes: 6,
          eof: true,
        },
      },
    },
    handler: async (request, reply) => {
      const { stream = 'stdout', offset = 0, limit = EXEC_BOUNDS.pageBytesDefault, wait_ms = 0 } = request.query;
      const caller = callerOf(request);
      const id = {
        accountId: caller.accountId,
        machineId: request.params.id,
        execId: request.params.exec_id,
      };
      const wantsEvents = request.method === 'GET' && request.headers.accept?.includes(EVENT_STREAM) === true;
      const start = wantsEvents ? (lastEventId(request) ?? offset) : offset;
      if (wantsEvents) {
        // Take the place first: an account that has too many streams is refused before any work is done for it.
        const leave = places.take(caller.accountId);
        // If the client has disconnected already, `close` is never emitted.
        if (reply.raw.closed) leave();
        else reply.raw.once('close', leave);
        const ending = requests.begin(reply);
        const target = await streams.open(id, stream, ending.signal);
        return sendEvents(app, caller, reply, ending, (sink) =>
          streams.send(target, { offset: start, limit }, sink, ending.signal),
        );
      }
      const target = await waits.find(id.accountId, wait_ms, () => findOutput(app, id, stream));
      const ending = requests.begin(reply);
      const credential = app.credentials.watch(caller, 'read', ending);
      const query = { offset, limit, waitMs: wait_ms };
      const body = await waits.page(target, query, ending.signal).finally(credential.stop);
      // The reply's type expects an object, but `body` is the object's JSON text already.
      return (reply as FastifyReply).type('application/json; charset=utf-8').send(body);
    },
  });
}

/**
 * Returns the offset from the header Last-Event-ID, at which a client resumes an interrupted event stream. Undefined
 * without the header. Throws `validation_error`.
 */
function lastEventId(request: FastifyRequest): number | undefined {
  const header = request.headers['last-event-id'];
  if (header === undefined || header === '') return undefined;
  if (typeof header !== 'string' || !/^\d{1,15}$/.test(header)) {
    throw new ServiceError('validation_error', 'Last-Event-ID must be the id of an event of this stream.');
  }
  return Number(header);
}

/** Answers with an event stream that `send` writes. `ending` is aborted when the stream has to end. */
async function sendEvents(
  app: App,
  caller: Caller,
  reply: FastifyReply,
  ending: AbortController,
  send: (sink: Writable) => Promise<void>,
): Promise<FastifyReply> {
  const credential = app.credentials.watch(caller, 'read', ending);
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) reply.raw.setHeader(name, value);
  reply.hijack();
  reply.raw.writeHead(200, {
    'content-type': `${EVENT_STREAM}; charset=utf-8`,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  });
  reply.raw.flushHeaders();
  // The stream reads page after page, so its calls are not in the trace.
  await app.tracing.detach(() => send(reply.raw)).finally(credential.stop);
  return reply;
}
