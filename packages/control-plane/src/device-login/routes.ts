// The routes of device logins. The program uses two public routes. The person uses three routes that need a dashboard
// session; a POST with a session also needs the Origin of one of our own pages. The lookup is a POST for this reason: a
// wrong code is counted, and a script of another site must not be able to send wrong codes.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { NewApiKey } from '@sandbar/contract/api-key.ts';
import {
  DeviceApproval,
  DeviceCode,
  DeviceCodeCreate,
  DeviceKeyRequest,
  DeviceLogin,
  UserCodeQuestion,
} from '@sandbar/contract/device-login.ts';
import { NoContent } from '@sandbar/contract/fields.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import { AUTH_PATH } from '../auth/better-auth.ts';
import { refuseForeignOrigin } from '../auth/origin.ts';
import { callerOf } from '../http/auth.ts';
import { approveLogin, denyLogin, type Entry, lookUpLogin } from './answer.ts';
import { beginLogin, pollLogin } from './poll.ts';

const tags = ['Account'];
const PATH = `${AUTH_PATH}/device`;
const NO_STORE = ['cache-control', 'no-store'] as const;

const exampleCode: DeviceCode = {
  device_code: 'sbd_Jq3n0xWc7PzL4sVb8RkYtG1dHf6mQ2aXoUe5iTjNw9A',
  user_code: 'WDJB-MJHT',
  verification_uri: 'https://sandbar.example.com/device',
  verification_uri_complete: 'https://sandbar.example.com/device?user_code=WDJB-MJHT',
  expires_in: 600,
  interval: 5,
};
const { user_code } = exampleCode;

export function addDeviceLoginRoutes(server: FastifyInstance, app: App): void {
  addProgramRoutes(server, app);
  addPersonRoutes(server, app);
}

function addProgramRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const onRequest = async (request: FastifyRequest) => refuseForeignOrigin(request, app.config.auth.publicUrl);

  server.route({
    method: 'POST',
    url: `${PATH}/code`,
    onRequest,
    schema: {
      operationId: 'beginDeviceLogin',
      summary: 'Ask for the codes of a device login',
      description:
        'Begins a device login as in RFC 8628, for a program without a browser. The program shows user_code and ' +
        'verification_uri, and polls POST /v1/auth/device/token with device_code every interval seconds.',
      tags,
      body: DeviceCodeCreate,
      response: { 200: DeviceCode },
    },
    config: {
      access: 'public',
      rateLimit: 'sign-in',
      errors: ['forbidden'],
      examples: { request: { name: 'laptop' }, response: exampleCode },
    },
    handler: async (request, reply) =>
      reply.header(...NO_STORE).send(await beginLogin(app, request.body.name, request.ip)),
  });

  server.route({
    method: 'POST',
    url: `${PATH}/token`,
    onRequest,
    schema: {
      operationId: 'pollDeviceLogin',
      summary: 'Take the API key of a device login',
      description:
        'Answers with an API key once the person has approved the code. The key is in one answer and never again. The ' +
        'errors are those of RFC 8628, in code: authorization_pending and slow_down mean to poll again, all others end ' +
        'the login.',
      tags,
      body: DeviceKeyRequest,
      response: { 200: NewApiKey },
    },
    // Polls take no token of a bucket: slow_down limits them, and a device code is too long to be guessed.
    config: {
      access: 'public',
      rateLimit: 'none',
      errors: ['authorization_pending', 'slow_down', 'expired_token', 'access_denied', 'forbidden', 'conflict'],
      examples: {
        request: { device_code: exampleCode.device_code },
        response: {
          id: '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20',
          name: 'laptop',
          scope: 'full',
          prefix: 'sbr_1kZ8vQ2x',
          created_at: '2026-01-02T03:04:05.006Z',
          last_used_at: null,
          expires_at: null,
          key: 'sbr_1kZ8vQ2xT5mYb7NwR3cJ9dH6gL4pF0sAeUiOqXnVtKz',
        },
      },
    },
    handler: async (request, reply) => reply.header(...NO_STORE).send(await pollLogin(app, request.body.device_code)),
  });
}

function addPersonRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const entryOf = (request: FastifyRequest<{ Body: { user_code: string } }>): Entry => ({
    accountId: callerOf(request).accountId,
    userCode: request.body.user_code,
  });

  server.route({
    method: 'POST',
    url: `${PATH}/lookup`,
    schema: {
      operationId: 'lookUpDeviceLogin',
      summary: 'Look up the code of a device login',
      description: 'Who asks for an API key. An account can enter five wrong codes, then none for ten minutes.',
      tags,
      body: UserCodeQuestion,
      response: { 200: DeviceLogin },
    },
    config: {
      access: 'session',
      errors: ['not_found', 'expired_token', 'conflict'],
      examples: {
        request: { user_code },
        response: {
          user_code,
          name: 'laptop',
          address: '203.0.113.7',
          created_at: '2026-01-02T03:04:05.006Z',
          expires_at: '2026-01-02T03:14:05.006Z',
        },
      },
    },
    handler: async (request) => lookUpLogin(app, entryOf(request)),
  });

  server.route({
    method: 'POST',
    url: `${PATH}/approve`,
    schema: {
      operationId: 'approveDeviceLogin',
      summary: 'Approve a device login',
      description:
        'The program then gets an API key of this scope, with the name of its computer. It is listed and revoked like any ' +
        'other. A wrong code counts as in the lookup.',
      tags,
      body: DeviceApproval,
      response: { 204: NoContent },
    },
    config: {
      access: 'session',
      errors: ['not_found', 'expired_token', 'conflict'],
      examples: { request: { user_code, scope: 'full' } },
    },
    handler: async (request, reply) => {
      await approveLogin(app, entryOf(request), request.body.scope);
      return reply.code(204).send();
    },
  });

  server.route({
    method: 'POST',
    url: `${PATH}/deny`,
    schema: {
      operationId: 'denyDeviceLogin',
      summary: 'Deny a device login',
      description: 'The program gets no API key. A wrong code counts as in the lookup.',
      tags,
      body: UserCodeQuestion,
      response: { 204: NoContent },
    },
    config: {
      access: 'session',
      errors: ['not_found', 'expired_token', 'conflict'],
      examples: { request: { user_code } },
    },
    handler: async (request, reply) => {
      await denyLogin(app, entryOf(request));
      return reply.code(204).send();
    },
  });
}
