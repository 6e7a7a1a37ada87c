// The API server: Fastify with the routes of every feature and with rules for all routes: authentication comes first,
// input is checked strictly, all errors have one form, and every response has a request id.
import {
  createServer,
  type Server as HttpServer,
  type IncomingMessage,
  type RequestListener,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { traceRequests } from '@sandbar/tracing/fastify.ts';
import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { addAccountRoutes } from '../accounts/routes.ts';
import { addActivityRoutes } from '../activity/routes.ts';
import { addOperatorRoutes } from '../admin/operator-routes.ts';
import { addApiKeyRoutes } from '../api-keys/routes.ts';
import type { App } from '../app.ts';
import { addAuthRoutes } from '../auth/routes.ts';
import { addPaymentRoutes } from '../billing/payments/routes.ts';
import { addBillingRoutes } from '../billing/routes.ts';
import { addDashboardRoutes } from '../dashboard/routes.ts';
import { addExecRoutes } from '../execs/routes.ts';
import { addFileRoutes } from '../files/routes.ts';
import { addFleetRoutes } from '../fleet/routes.ts';
import { addImageRoutes } from '../images/routes.ts';
import { addMachineRoutes } from '../machines/routes.ts';
import { countRequests } from '../metrics/requests.ts';
import { declareDocsPublic, installDocument } from '../openapi/document.ts';
import { PreviewServer } from '../ports/preview-server.ts';
import { addPortRoutes } from '../ports/routes.ts';
import { addQuotaRoutes } from '../quotas/routes.ts';
import { installRateLimits } from '../rate-limits/hook.ts';
import { addSnapshotRoutes } from '../snapshots/routes.ts';
import { addTerminalRoutes } from '../terminals/routes.ts';
import { Certificates } from '../tls/certificates.ts';
import { createTlsServer } from '../tls/server.ts';
import { addVolumeRoutes } from '../volumes/routes.ts';
import { proxyMatcher } from './address.ts';
import { installAuth } from './auth.ts';
import { Connections } from './connections.ts';
import { describeRequest } from './describe-request.ts';
import { malformedRequestResponse, sendError, sendFrameworkError } from './errors.ts';
import { acceptEveryMethod, watchMethods } from './methods.ts';
import { markAnswersOverTls } from './over-tls.ts';
import { RawBodies } from './raw-bodies.ts';
import { REQUEST_ID_HEADER, requestIdOf } from './request-id.ts';
import './route-config.ts';
import { installStrictness } from './strictness.ts';
import { refuseWhileClosing, Unfinished } from './unfinished.ts';
import { acceptUpgrades, isWebSocketUpgrade } from './websocket.ts';

export type Server = FastifyInstance;

const BODY_LIMIT = 1024 * 1024;
/** How long a client may take to send a request with its headers and body, milliseconds. Answers have no limit. */
const RECEIVE_MS = 120_000;
/** How often connections are checked for the time-outs of receiving, milliseconds. */
const CHECK_RECEIVING_MS = 1_000;
/** How long a connection between two requests is kept, milliseconds. Longer than the 60 s of many load balancers. */
const KEEP_IDLE_MS = 72_000;
const MAX_PARAM_LENGTH = 1024;
const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/** What the server shares with the one who starts and stops it. */
export type ServerParts = { certificates: Certificates; unfinished: Unfinished };

/** Builds the server. It does not listen yet, and connects to nothing. */
export async function buildServer(
  app: App,
  parts: ServerParts = { certificates: new Certificates(), unfinished: new Unfinished(app.draining) },
): Promise<Server> {
  const rawBodies = new RawBodies();
  const previews = new PreviewServer(app);
  const server = fastify({
    loggerInstance: app.log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    requestIdHeader: false,
    genReqId: requestIdOf,
    bodyLimit: BODY_LIMIT,
    serverFactory: (handler) => createHttpServer(app, parts, previews, handler),
    ...(app.config.trustProxy === '' ? {} : { trustProxy: app.config.trustProxy }),
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    ajv: {
      customOptions: {
        // Strict: a number in quotes is not a number, and an unknown field is an error. The code of each action sets
        // defaults.
        coerceTypes: false,
        removeAdditional: false,
        useDefaults: false,
        allErrors: false,
        verbose: true,
        strict: false,
      },
      // Stricter than the format of ajv-formats, which also accepts the prefix `urn:uuid:`.
      onCreate: (ajv) => ajv.addFormat('uuid', UUID),
    },
    frameworkErrors: sendFrameworkError,
    clientErrorHandler: (error: NodeJS.ErrnoException, socket: Socket) => {
      const isStream = rawBodies.isReceiving(socket) || previews.isRelaying(socket);
      if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && isStream) return;
      if (socket.writable) socket.end(malformedRequestResponse(error.code));
      else socket.destroy();
    },
  });

  const connections = new Connections(app.config.bounds, proxyMatcher(app.config.trustProxy), parts.unfinished);
  connections.watch(server.server);
  previews.connections = connections;
  acceptUpgrades(server);

  // JSON.stringify is faster here than the serialiser that Fastify generates from a response schema, and it keeps all
  // keys of metadata. The contract's types check responses at compile time, and tests check them against the schemas.
  server.setSerializerCompiler(() => JSON.stringify);
  server.removeContentTypeParser('text/plain');
  installJsonParser(server);
  server.setErrorHandler(sendError);
  server.setNotFoundHandler(() => {
    throw new ServiceError('not_found', 'There is nothing at this path.');
  });

  traceRequests(server, app.tracing, { beginsTraces: true, describe: describeRequest });
  server.addHook('onRequest', async (request, reply) => {
    reply.header(REQUEST_ID_HEADER, request.id);
  });
  // During a shutdown, tell clients to close their connections, so that their next request goes to another replica.
  server.addHook('onSend', async (_request, reply) => {
    if (app.draining.aborted) reply.header('connection', 'close');
  });
  markAnswersOverTls(server, app.config.hstsSec);
  countRequests(server, app.metrics);
  acceptEveryMethod(server);
  declareDocsPublic(server);
  const refuseOtherMethods = watchMethods(server);
  installAuth(server, app);
  server.addHook('onRequest', async ({ caller }, reply) => {
    if (caller) connections.authenticated(reply.raw, caller.accountId);
  });
  installRateLimits(server, app);
  installStrictness(server);
  rawBodies.install(server);
  await installDocument(server);

  addAccountRoutes(server, app);
  addApiKeyRoutes(server, app);
  addAuthRoutes(server, app);
  addMachineRoutes(server, app);
  await addExecRoutes(server, app);
  await addFileRoutes(server, app, rawBodies);
  addTerminalRoutes(server, app, connections);
  addPortRoutes(server, app);
  addVolumeRoutes(server, app);
  addSnapshotRoutes(server, app);
  addImageRoutes(server, app);
  addQuotaRoutes(server, app);
  addActivityRoutes(server, app);
  await addPaymentRoutes(server, app);
  addBillingRoutes(server, app);
  addFleetRoutes(server, app);
  if (app.config.adminHttp) addOperatorRoutes(server, app);
  await addDashboardRoutes(server, app);
  refuseOtherMethods();
  await server.ready();
  return server;
}

/**
 * Creates the HTTP server. `handler` passes a request to Fastify. Requests to the host names of ports go to `previews`
 * and never reach Fastify.
 */
function createHttpServer(
  app: App,
  { certificates }: ServerParts,
  previews: PreviewServer,
  handler: RequestListener,
): HttpServer {
  const { headersMs } = app.config.timing;
  const options: ServerOptions = {
    headersTimeout: headersMs,
    requestTimeout: RECEIVE_MS,
    keepAliveTimeout: KEEP_IDLE_MS,
    connectionsCheckingInterval: Math.min(CHECK_RECEIVING_MS, headersMs),
    shouldUpgradeCallback: isWebSocketUpgrade,
  };
  const serve: RequestListener = (request, response) => {
    if (app.closing.aborted) {
      refuseWhileClosing(request, response);
      return;
    }
    if (app.draining.aborted) response.shouldKeepAlive = false;
    if (!previews.handle(request, response)) handler(request, response);
  };
  const server = app.config.tls
    ? createTlsServer(certificates, headersMs, options, serve)
    : createServer(options, serve);
  // Node would leave out header fields past this number, such as the length of a body that it then reads all the same.
  // Their size is limited in any case.
  server.maxHeadersCount = 0;
  // The client waits for `100 Continue` before it sends the body. The API always sends it. For a request to a port, the
  // program in the machine decides.
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    if (!previews.isFor(request)) response.writeContinue();
    server.emit('request', request, response);
  });
  return server;
}

/**
 * Uses Fastify's own JSON parser, with two differences. An empty body counts as no body, because many clients send a
 * content type without a body. And `__proto__` and `constructor` are accepted as names: JSON.parse makes them ordinary
 * properties, the schemas refuse them as unknown fields, and clients may use them in metadata. So later code must not
 * copy such names with `target[name] =`, which could change a prototype.
 */
function installJsonParser(server: FastifyInstance): void {
  const parse = server.getDefaultJsonParser('ignore', 'ignore');
  server.removeContentTypeParser('application/json');
  server.addContentTypeParser<string>('application/json', { parseAs: 'string' }, (request, text, done) => {
    if (text === '') done(null, undefined);
    else void parse(request, text, done);
  });
}
