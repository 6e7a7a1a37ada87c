// Records a span for each request that a Fastify server answers.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Attributes, Tracing } from './tracing.ts';

export type RequestTracing = {
  /** Whether a request without a `traceparent` header begins a new trace. If false, such a request is not traced. */
  beginsTraces: boolean;
  /** Called after the answer. Returns more attributes for the span, and an error that marks it as failed. */
  describe: (request: FastifyRequest, reply: FastifyReply) => { attributes: Attributes; error?: unknown };
};

/**
 * Adds the spans. Call it before you add other hooks, so that their spans get the request's span as parent. A span ends
 * when the response is closed, so a long stream is one span.
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
