// Tests the spans of a Fastify server's requests.
import assert from 'node:assert/strict';
import { request as startRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, describe, it } from 'node:test';
import fastify from 'fastify';
import { traceRequests } from '../src/fastify.ts';
import { startTracing } from '../src/start.ts';
import { Collector } from './support/collector.ts';

const collector = await Collector.start();
const log = { info() {}, warn() {} };
const tracing = await startTracing({ service: 'test', env: collector.env, log });
const server = fastify();
traceRequests(server, tracing, { beginsTraces: false, describe: () => ({ attributes: { known: true } }) });
server.post('/things/:id', () => tracing.span('handler', {}, async () => ({})));
await server.listen({ port: 0, host: '127.0.0.1' });
const { port } = server.server.address() as AddressInfo;
after(async () => {
  await server.close();
  await collector.close();
});

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** Sends the body only after the server has asked for it, so the server reads it in a callback of the connection. */
function sendLate(headers: Record<string, string>): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const content = { 'content-type': 'application/json', expect: '100-continue', ...headers };
  const request = startRequest({ port, path: '/things/1', method: 'POST', headers: content });
  request.on('continue', () => request.end('{}'));
  request.on('error', reject);
  request.on('response', (response) => response.resume().on('end', resolve));
  request.flushHeaders();
  return promise;
}

describe('a traced server', () => {
  it('makes the spans of handlers children of the request, and traces only requests that name a trace', async () => {
    await sendLate({ traceparent: PARENT });
    await sendLate({});
    await server.close();
    await tracing.close();
    const [handler, request] = collector.spans;
    assert.deepEqual([collector.spans.length, handler?.name, request?.name], [2, 'handler', 'POST /things/:id']);
    assert.equal(handler?.parentSpanId, request?.spanId);
    assert.equal(request?.parentSpanId, 'b7ad6b7169203331');
    assert.deepEqual(request?.attributes, {
      'http.request.method': 'POST',
      'http.route': '/things/:id',
      'http.response.status_code': 200,
      known: true,
    });
  });
});
