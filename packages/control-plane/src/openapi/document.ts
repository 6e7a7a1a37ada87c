// Makes the OpenAPI documents and the web page of the public one from the routes, so that nothing is written down
// twice. The schema of a route describes its input and output. The config of a route says who may call it and which
// errors it can return.
import swagger, { type SwaggerTransform, type SwaggerTransformObject } from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance, RouteOptions } from 'fastify';
import { SESSION_COOKIE } from '../auth/cookie.ts';
import { type Document, finishDocument } from './finish.ts';
import type { OperationFacts } from './operation.ts';

const DOCS_PREFIX = '/docs';
/**
 * The page loads nothing from other sites, so it works offline. Inline styles are allowed because the page uses them.
 */
const DOCS_CSP = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'";

const DESCRIPTION = `Programs get real microVMs through this API: create a machine, run commands in it as jobs, read their
output byte for byte, stop, start and destroy it.

Bodies are JSON and strict: an unknown field is a 400. Ids are UUIDs, times RFC 3339 UTC. Every response carries
X-Request-Id. Every error is \`{ "detail", "code" }\`. Lists are complete and newest first unless page_size is given.`;

const ADMIN_DESCRIPTION = `The requests of the operator's pages of the dashboard. They are not part of the public API, and
change with the dashboard. They take the session of an operator account only, and 15 minutes after the last check of its
password they answer 403 \`password_required\`, or \`sign_in_required\` for an account without a password.`;

const BASE = { openapi: '3.1.0', servers: [{ url: '/' }] };
const INFO = { version: '0.1.0', license: { name: 'Apache-2.0' } };
const BEARER = { type: 'http', scheme: 'bearer', description: 'An API key: sbr_…' } as const;
const SESSION = {
  type: 'apiKey',
  in: 'cookie',
  name: SESSION_COOKIE,
  description: 'A dashboard session.',
} as const;

const isOfOperator = (url: string): boolean => url.startsWith('/admin/v1/');

/**
 * Declares the routes of the web page as public. A plugin adds these routes, so they declare no access themselves. Call
 * this before `installAuth`.
 */
export function declareDocsPublic(server: FastifyInstance): void {
  server.addHook('onRoute', (route: RouteOptions) => {
    if (route.url === DOCS_PREFIX || route.url.startsWith(`${DOCS_PREFIX}/`)) {
      route.config = { ...route.config, access: 'public', lenient: true };
    }
  });
}

declare module 'fastify' {
  interface FastifyInstance {
    /** The document of the operator's routes, which are not part of the public API. */
    adminSwagger(): unknown;
  }
}

/**
 * Adds `/openapi.json` and `/docs`, and the method `adminSwagger`. Call it before the first route that belongs into a
 * document.
 */
export async function installDocument(server: FastifyInstance): Promise<void> {
  const operations = new Map<string, OperationFacts>();
  server.addHook('onRoute', ({ method, schema, config }: RouteOptions) => {
    if (schema?.operationId && method !== 'HEAD') operations.set(schema.operationId, { schema, config: config ?? {} });
  });
  const transformObject: SwaggerTransformObject = (source) =>
    'openapiObject' in source ? finishDocument(source.openapiObject as Document, operations) : source.swaggerObject;
  const hideIf =
    (isHidden: (url: string) => boolean): SwaggerTransform =>
    ({ schema, url }) => ({ schema: isHidden(url) ? { ...schema, hide: true } : schema, url });
  await server.register(swagger, {
    openapi: {
      ...BASE,
      info: { ...INFO, title: 'Sandbar', description: DESCRIPTION },
      components: { securitySchemes: { bearer: BEARER, session: SESSION } },
      tags: [
        { name: 'Account', description: 'Whose it is, and how much it may use.' },
        { name: 'Machines', description: 'MicroVMs and their life.' },
        { name: 'Exec', description: 'Commands in machines, as jobs.' },
        { name: 'Files', description: 'Files of running machines.' },
        { name: 'Terminal', description: 'Shells in machines, over a WebSocket.' },
        { name: 'Ports', description: 'What programs in machines serve.' },
        { name: 'Volumes', description: 'Disks with a life of their own.' },
        {
          name: 'Snapshots',
          description: 'Saved disks and memories of machines, to go back to or to make machines from.',
        },
        { name: 'Billing', description: 'What was used, what it cost, and the wallet that pays for it.' },
        { name: 'Activity', description: 'What was done.' },
        { name: 'Images', description: 'What machines are made from.' },
      ],
    },
    transform: hideIf(isOfOperator),
    transformObject,
  });
  await server.register(swagger, {
    decorator: 'adminSwagger',
    openapi: {
      ...BASE,
      info: { ...INFO, title: 'Sandbar, for operators', description: ADMIN_DESCRIPTION },
      components: { securitySchemes: { session: SESSION } },
      tags: [{ name: 'Operator', description: 'What only an operator may see and do, in the dashboard.' }],
    },
    transform: hideIf((url) => !isOfOperator(url)),
    transformObject,
  });
  await server.register(swaggerUi, {
    routePrefix: DOCS_PREFIX,
    staticCSP: DOCS_CSP,
    // Hides the bar with the logo of the library.
    theme: {
      title: 'Sandbar API',
      css: [{ filename: 'sandbar.css', content: '.swagger-ui .topbar { display: none }' }],
    },
    uiConfig: { validatorUrl: null, deepLinking: true, tryItOutEnabled: true },
  });
  server.get('/openapi.json', { schema: { hide: true }, config: { access: 'public' } }, async (_request, reply) =>
    reply.type('application/json; charset=utf-8').send(JSON.stringify(server.swagger())),
  );
}
