// The HTTP endpoint that watches files, as server-sent events.
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { type FileEvent, FileWatchQuery } from '@sandbar/contract/file.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import { RESUME_SOON } from '../http/ending.ts';
import { Places } from '../http/places.ts';
import { targetOf } from './request.ts';
import { beginAnswer } from './send.ts';
import { openWatch, readEvents } from './watch.ts';

export function addWatchRoute(untyped: FastifyInstance, app: App): void {
  const places = new Places(
    app.config.bounds.streamsPerAccount,
    'watches of files',
    app.metrics.streams.labels('watch'),
  );
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/files/watch',
    exposeHeadRoute: false,
    schema: {
      operationId: 'watchFiles',
      summary: 'Watch files',
      description:
        'Changes of a file or directory, as server-sent events with a FileEvent each. The first is `ready`: what changes ' +
        'after it is reported. `overflow`: events were lost. The stream ends when the path itself is removed; in every ' +
        'other case its connection breaks.',
      tags: ['Files'],
      params: MachineParams,
      querystring: FileWatchQuery,
    },
    config: {
      access: 'read',
      errors: ['conflict', 'host_unavailable', 'rate_limited'],
      binaryResponse: 'text/event-stream',
    },
    handler: async (request, reply) => {
      const signal = abortOnDisconnect(reply);
      const { recursive = true } = request.query;
      const stream = await openWatch(app, targetOf(request), recursive, { waits: true, places, signal });
      beginAnswer(reply, 200, {
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-store',
        'x-accel-buffering': 'no',
      });
      await sendEvents(readEvents(stream), reply.raw, app.config.timing.streamHeartbeatMs, signal).catch(
        (error: unknown) => {
          app.log.info({ err: error }, 'a watch of files broke off');
          if (app.closing.aborted) reply.raw.write(RESUME_SOON, () => reply.raw.destroy());
          else reply.raw.destroy();
        },
      );
      return reply;
    },
  });
}

/** Writes all events, and a comment from time to time, so that proxies keep the connection. Then ends the sink. */
async function sendEvents(
  events: AsyncIterable<FileEvent>,
  sink: Writable,
  heartbeatMs: number,
  signal: AbortSignal,
): Promise<void> {
  const heartbeat = setInterval(() => {
    if (sink.writableLength === 0) sink.write(':\n\n');
  }, heartbeatMs);
  try {
    for await (const event of events) {
      if (!sink.write(`data: ${JSON.stringify(event)}\n\n`)) await once(sink, 'drain', { signal });
    }
    sink.end();
  } finally {
    clearInterval(heartbeat);
  }
}
