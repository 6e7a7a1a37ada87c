// A span for each request that a Fastify server answers.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Attributes, Tracing } from './tracing.ts';

export type RequestTracing = {
  /** Whether a request that names no trace begins one. Otherwise it is not traced. */
  beginsTraces: boolean;
  /** Attributes that are known when the request was answered. `error`: as in `OpenSpan.fail`. */
  describe: (request: FastifyRequest, reply: FastifyReply) => { attributes: Attributes; error?: unknown };
};

/**
 * Adds the spans. Call it before other hooks are added: they run below the span. A span ends when the connection has
 * taken the whole answer, so a long stream is one span.
 */
export function traceRequests(server: FastifyInstance, tracing: Tracing, options: RequestTracing): void {
  if (!tracing.isOn) return;
  server.addHook('onRequest', (request, reply, done) => {
    if (!options.beginsTraces && request.headers.traceparent === undefined) return done();
    const { method, headers } = request;
    const route = request.routeOptions.url ?? 'unknown';
    const attributes = { 'http.request.method': method, 'http.route': route };
    const span = tracing.begin(`${method} ${route}`, { kind: 'server', from: headers, attributes });
    reply.raw.once('close', () => {
      const { attributes, error } = options.describe(request, reply);
      const { headersSent, statusCode } = reply.raw;
      span.set({ ...attributes, ...(headersSent ? { 'http.response.status_code': statusCode } : {}) });
      if (error !== undefined) span.fail(error);
      span.end();
    });
    span.run(done);
  });
}
