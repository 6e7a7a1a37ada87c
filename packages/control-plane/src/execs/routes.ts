// The HTTP endpoints of jobs.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  Exec,
  ExecCreate,
  ExecCreateQuery,
  ExecGetQuery,
  ExecList,
  ExecListQuery,
  ExecParams,
  ExecStarted,
} from '@sandbar/contract/exec.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import { createExec } from './create.ts';
import { exampleExec, exampleRunning } from './examples.ts';
import { cancelExec, getExec } from './get.ts';
import { JobWaits } from './job-waits.ts';
import { listExecs } from './list.ts';
import { addOutputRoute } from './output-route.ts';
import { addStdinRoutes } from './stdin-routes.ts';

const tags = ['Exec'];

export async function addExecRoutes(untyped: FastifyInstance, app: App): Promise<void> {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const waits = new JobWaits(app);

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/execs',
    schema: {
      operationId: 'createExec',
      summary: 'Start a job',
      description:
        'Runs a command in a machine, after waiting up to 30 seconds for a machine that is just starting. It answers at ' +
        'once, or with wait_ms when the job ended or that time is over, with the first page of its output: one request is ' +
        'enough for a short command. At most 16 jobs run in a machine.',
      tags,
      params: MachineParams,
      querystring: ExecCreateQuery,
      body: ExecCreate,
      response: { 201: ExecStarted },
    },
    config: {
      access: 'full',
      rateLimit: 'exec',
      errors: ['conflict', 'host_unavailable'],
      examples: { request: { command: 'echo hello' }, response: exampleRunning() },
    },
    handler: async (request, reply) => {
      const waiting = { waits, waitMs: request.query.wait_ms, signal: abortOnDisconnect(reply) };
      const exec = await createExec(app, callerOf(request).accountId, request.params.id, request.body, waiting);
      return reply.code(201).send(exec);
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/execs',
    schema: {
      operationId: 'listExecs',
      summary: 'List jobs',
      description: 'The jobs of a machine, newest first, all of them unless page_size is given.',
      tags,
      params: MachineParams,
      querystring: ExecListQuery,
      response: { 200: ExecList },
    },
    config: { access: 'read', examples: { response: { execs: [exampleExec()] } } },
    handler: (request) => listExecs(app, callerOf(request).accountId, request.params.id, request.query),
  });

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/execs/:exec_id',
    schema: {
      operationId: 'getExec',
      summary: 'Get a job',
      description: 'With wait_ms the answer waits that long for the end of the job.',
      tags,
      params: ExecParams,
      querystring: ExecGetQuery,
      response: { 200: Exec },
    },
    config: { access: 'read', examples: { response: exampleExec() } },
    handler: (request, reply) => {
      const id = execId(callerOf(request).accountId, request.params);
      return getExec(app, waits, id, request.query.wait_ms ?? 0, abortOnDisconnect(reply));
    },
  });

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/execs/:exec_id/cancel',
    schema: {
      operationId: 'cancelExec',
      summary: 'Cancel a job',
      description: 'TERM to every process of the job, KILL after 5 seconds. An ended job is answered as it is.',
      tags,
      params: ExecParams,
      response: { 200: Exec },
    },
    config: {
      access: 'full',
      errors: ['host_unavailable'],
      examples: { response: exampleExec({ status: 'canceled', exit_code: null, signal: 'SIGTERM' }) },
    },
    handler: (request) => cancelExec(app, execId(callerOf(request).accountId, request.params)),
  });

  addOutputRoute(untyped, app, waits);
  await addStdinRoutes(untyped, app, waits);

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/exec',
    schema: {
      operationId: 'retiredExec',
      summary: 'Retired: use /execs',
      description: 'Always 410. Commands run as jobs: POST /v1/machines/{id}/execs.',
      tags,
      deprecated: true,
      params: MachineParams,
    },
    config: { access: 'full', errors: ['endpoint_retired'] },
    // Refuse before the body is parsed, so that old clients get this error whatever body they send.
    onRequest: async (request, reply) => {
      const replacement = `/v1/machines/${encodeURIComponent(request.params.id)}/execs`;
      reply.header('link', `<${replacement}>; rel="successor-version"`);
      throw new ServiceError('endpoint_retired', `This endpoint was retired; start a job with POST ${replacement}.`);
    },
    handler: async () => undefined,
  });
}

const execId = (accountId: string, params: { id: string; exec_id: string }) => ({
  accountId,
  machineId: params.id,
  execId: params.exec_id,
});
