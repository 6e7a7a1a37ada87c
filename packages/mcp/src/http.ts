// Serves many clients over streamable HTTP. Each request has the API key of its caller, and the tools use that key.

import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  originValidationResponse,
} from '@modelcontextprotocol/server';
import { Client } from '@sandbar/sdk/client.ts';
import { VERSION } from '@sandbar/sdk/version.ts';
import { allowedHostsOf, bracketed } from './allowed-hosts.ts';
import { KeyChecks } from './key-checks.ts';
import { refusal } from './refusal.ts';
import { RunningCalls } from './running-calls.ts';
import { createServer } from './server.ts';
import { Sessions } from './sessions.ts';
import { MESSAGE_BYTES, SETTLE_MS } from './transport-bounds.ts';

/** The path of the endpoint. */
export const MCP_PATH = '/mcp';

/** How long a request is retried, seconds. Shorter than in the SDK, because the agent itself can try again. */
const RETRY_FOR_SEC = 20;

/** How long the server, when it shuts down, waits until its clients have read the last answers, ms. */
const LAST_WORDS_MS = 1000;

export type HttpOptions = {
  /** The address to listen at. Default: 127.0.0.1. */
  host?: string | undefined;
  /** 0: any free port. */
  port: number;
  /** The address of the Sandbar service. */
  baseUrl: string;
  /** Further host names under which clients reach this server, such as that of a proxy. */
  allowedHosts?: readonly string[] | undefined;
  /** Called with errors that do not belong to a tool call. */
  onError?: ((error: Error) => void) | undefined;
};

export type HttpServer = {
  /** The address for clients. */
  url: string;
  /** Accepts no more connections, cancels the running calls, and resolves when these are answered. */
  close(): Promise<void>;
};

/** Listens for clients until `close` is called. Throws when it cannot listen. */
export async function serveHttp(options: HttpOptions): Promise<HttpServer> {
  const { host = '127.0.0.1', port, baseUrl, allowedHosts = [], onError } = options;
  const calls = new RunningCalls();
  const serverFor = (apiKey: string) =>
    createServer(
      new Client({ baseUrl, apiKey, userAgent: `sandbar-mcp/${VERSION}`, retryForSec: RETRY_FOR_SEC }),
      calls,
    );
  const sessions = new Sessions(serverFor);
  const reporting = onError ? { onerror: onError } : {};
  const bounds = { maxRequestBodySize: MESSAGE_BYTES };
  const modern = createMcpHandler(({ authInfo }) => serverFor(authInfo?.token ?? ''), {
    legacy: 'reject',
    ...reporting,
    ...bounds,
  });
  const keys = new KeyChecks(baseUrl);
  const names = allowedHostsOf(host, allowedHosts);

  const fetch = async (request: Request): Promise<Response> => {
    const foreign = hostHeaderValidationResponse(request, names) ?? originValidationResponse(request, names);
    if (foreign) return foreign;
    if (new URL(request.url).pathname !== MCP_PATH) return refusal(404, `Not found. The endpoint is ${MCP_PATH}`);
    const apiKey = bearerOf(request);
    if (apiKey === undefined) return unauthorized('Send an API key: Authorization: Bearer sbr_…');
    const state = await keys.check(apiKey);
    if (state === 'invalid') return unauthorized('The API key is wrong, expired or revoked');
    if (state === 'unknown') return refusal(503, `The Sandbar service at ${baseUrl} does not answer`);
    if (await isLegacyRequest(request, undefined, bounds)) return sessions.fetch(request, apiKey);
    return modern.fetch(request, { authInfo: { token: apiKey, clientId: 'api-key', scopes: [] } });
  };

  const handle = toNodeHandler({ fetch }, { ...reporting, ...bounds });
  const server = createHttpServer((request, response) => {
    const { method = 'GET', url = '/' } = request;
    void handle(Object.assign(request, { method, url }), response);
  }).listen(port, host);
  await once(server, 'listening');
  const address = server.address();
  const listening = typeof address === 'object' && address !== null ? address.port : port;
  return {
    url: `http://${bracketed(host)}:${listening}${MCP_PATH}`,
    close: async () => {
      const isClosed = new Promise((resolve) => server.close(resolve));
      await calls.end(SETTLE_MS);
      await Promise.all([sessions.close(), modern.close()]);
      server.closeIdleConnections();
      const giveUp = setTimeout(() => server.closeAllConnections(), LAST_WORDS_MS);
      await isClosed;
      clearTimeout(giveUp);
    },
  };
}

function bearerOf({ headers }: Request): string | undefined {
  const [, key] = /^Bearer +(sbr_[\x21-\x7e]+)$/i.exec(headers.get('authorization') ?? '') ?? [];
  return key;
}

function unauthorized(message: string): Response {
  return refusal(401, message, { 'www-authenticate': 'Bearer realm="sandbar"' });
}
