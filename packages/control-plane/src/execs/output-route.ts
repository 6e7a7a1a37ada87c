// The HTTP endpoint for a job's output. It returns one page as JSON, or all pages as server-sent events.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS, ExecOutput, ExecOutputQuery, ExecParams } from '@sandbar/contract/exec.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import { findOutput, type OutputTarget, readPageOfOutput, refuseExpiredOutput, writePage } from './output.ts';
import { streamOutput } from './stream.ts';

const EVENT_STREAM = 'text/event-stream';

export function addOutputRoute(untyped: FastifyInstance, app: App): void {
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/execs/:exec_id/output',
    schema: {
      operationId: 'getExecOutput',
      summary: 'Read the output of a job',
      description:
        'A page of bytes from an absolute offset; concatenated pages are the exact bytes. Any byte can be read again, ' +
        'also after the machine stopped, unless newer jobs needed the room (410 output_expired). With Accept: text/event-stream the same objects come as events until eof; the ' +
        'id of an event is its next_offset, so that Last-Event-ID resumes.',
      tags: ['Exec'],
      params: ExecParams,
      querystring: ExecOutputQuery,
      response: { 200: ExecOutput },
    },
    config: {
      access: 'read',
      errors: ['host_unavailable', 'output_expired'],
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
      const id = {
        accountId: callerOf(request).accountId,
        machineId: request.params.id,
        execId: request.params.exec_id,
      };
      const wantsEvents = request.method === 'GET' && request.headers.accept?.includes(EVENT_STREAM) === true;
      const start = wantsEvents ? (lastEventId(request) ?? offset) : offset;
      const target = await findOutput(app, id, stream);
      const signal = AbortSignal.any([abortOnDisconnect(reply), app.closing]);
      if (wantsEvents) {
        await refuseExpiredOutput(app, target, signal);
        return sendEvents(app, reply, target, { offset: start, limit });
      }
      const page = await readPageOfOutput(app, target, { offset, limit, waitMs: wait_ms }, signal);
      const body = writePage(target, offset, page);
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

async function sendEvents(
  app: App,
  reply: FastifyReply,
  target: OutputTarget,
  reading: { offset: number; limit: number },
): Promise<FastifyReply> {
  const signal = AbortSignal.any([abortOnDisconnect(reply), app.closing]);
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) reply.raw.setHeader(name, value);
  reply.hijack();
  reply.raw.writeHead(200, {
    'content-type': `${EVENT_STREAM}; charset=utf-8`,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  });
  reply.raw.flushHeaders();
  await streamOutput(app, target, reading, reply.raw, signal);
  return reply;
}
