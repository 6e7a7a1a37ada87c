// The HTTP endpoints that act on a running job: its stdin, and signals.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { Exec, ExecParams, ExecSignal, ExecStdin, ExecStdinQuery } from '@sandbar/contract/exec.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import { exampleRunning } from './examples.ts';
import type { JobWaits } from './job-waits.ts';
import { signalExec } from './signal.ts';
import { StdinWriter } from './stdin.ts';

const tags = ['Exec'];

export async function addStdinRoutes(untyped: FastifyInstance, app: App, waits: JobWaits): Promise<void> {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/execs/:exec_id/signal',
    schema: {
      operationId: 'signalExec',
      summary: 'Send a signal to a job',
      description:
        "Sends the signal to the job's first process, which is the shell for a command. The answer does not wait for " +
        'what the process does with it. An ended job is answered as it is.',
      tags,
      params: ExecParams,
      body: ExecSignal,
      response: { 200: Exec },
    },
    config: {
      access: 'full',
      errors: ['conflict', 'host_unavailable'],
      examples: { request: { signal: 'INT' }, response: { ...exampleRunning(), timeout_sec: null } },
    },
    handler: (request, reply) => {
      const id = { machineId: request.params.id, execId: request.params.exec_id };
      return signalExec(app, waits, callerOf(request), id, request.body.signal, abortOnDisconnect(reply));
    },
  });

  // A scope of its own, because here a body of any content type is taken as it is.
  await untyped.register(async (raw) => {
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser<Buffer>('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
    addStdinRoute(raw, app);
  });
}

function addStdinRoute(untyped: FastifyInstance, app: App): void {
  const writer = new StdinWriter(app);
  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'PUT',
    url: '/v1/machines/:id/execs/:exec_id/stdin',
    schema: {
      operationId: 'writeExecStdin',
      summary: 'Write to the stdin of a job',
      description:
        'Appends the body, up to 1 MiB of any content type, to the stdin of a job that was started with stdin_open. ' +
        'offset is the position of its first byte. What lies before next_offset was accepted already and is skipped, so ' +
        'a repeated request writes nothing twice; a gap is a 409. While the command does not read, the answer waits, up ' +
        'to 30 seconds, and then says how much was accepted: go on at next_offset. An empty body at offset 0 asks for ' +
        'next_offset. close ends stdin after the body. When stdin is closed, the command has closed it, or the job has ' +
        'ended, new bytes are a 409, and a request without any is answered as before. Not limited in its rate; a bounded ' +
        'number of requests of an account may wait, and one more is a 429.',
      tags,
      params: ExecParams,
      querystring: ExecStdinQuery,
      response: { 200: ExecStdin },
    },
    config: {
      access: 'full',
      rateLimit: 'none',
      binaryRequest: 'application/octet-stream',
      bodyIsOptional: true,
      errors: ['conflict', 'host_unavailable', 'payload_too_large', 'rate_limited', 'unsupported_media_type'],
      examples: { response: { next_offset: 6, closed: false } },
    },
    handler: async (request, reply) => {
      const { params, query } = request;
      const caller = callerOf(request);
      const credential = app.credentials.watch(caller, 'change');
      const gone = AbortSignal.any([abortOnDisconnect(reply), credential.signal]);
      const append = {
        machineId: params.id,
        execId: params.exec_id,
        offset: query.offset,
        bytes: Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0),
        close: query.close ?? false,
      };
      try {
        return await writer.append(caller, append, gone);
      } catch (error) {
        credential.signal.throwIfAborted();
        throw error;
      } finally {
        credential.stop();
      }
    },
  });
}
