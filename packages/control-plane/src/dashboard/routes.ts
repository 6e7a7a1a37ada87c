// Serves the dashboard: a folder of files that Vite has built (packages/dashboard). All its paths are public, because
// they contain no data; the page asks the API with the session's cookie.
import fastifyStatic from '@fastify/static';
import { DASHBOARD_PAGES } from '@sandbar/contract/dashboard.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { App } from '../app.ts';

/**
 * The page may load its own files and call the API of the same origin, nothing else. No other page may put it in a
 * frame. `'self'` includes WebSockets to the same origin.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  vary: 'accept-encoding',
};

/** The names of these files contain a hash of their content, so a browser never needs to ask for them again. */
const FOR_EVER = { cacheControl: true, immutable: true, maxAge: '1y' } as const;

/** The names that Vite gives to built files. Clients do not request the compressed files by name. */
const ASSET = /^[\w.-]+\.(js|css|svg)$/;

/** Paths below these are never pages, so what is unknown there gets the error of the API in JSON. */
const NOT_PAGES = /^\/*(v1|admin|docs|assets|openapi[^/]*)(\/|$)/;

/**
 * A request for a part of a file, or for a file that must not have changed, gets the whole file. HTTP allows a server
 * to ignore these headers. The library would answer 416 or 412 to some of them, as an error.
 */
const IGNORED_HEADERS = ['range', 'if-range', 'if-match', 'if-unmodified-since'];
/** A page that says "no such page" is always sent, whatever the browser has of it. */
const NOT_FOUND_IGNORED = ['if-none-match', 'if-modified-since'];
const NOT_FOUND_OPTIONS = { etag: false, lastModified: false };

const config = { access: 'public', lenient: true } as const;
const schema = { hide: true };

/** Without a built dashboard, `/` leads to the reference of the API, and the pages are 404 like every unknown path. */
export async function addDashboardRoutes(server: FastifyInstance, { config: { dashboardDir } }: App): Promise<void> {
  if (dashboardDir === undefined) {
    server.get('/', { schema, config }, async (_request, reply) => reply.redirect('/docs'));
    return;
  }
  // The build puts a file with the ending .br and one with .gz beside each script, style and icon (vite-compress.ts).
  const options = { serve: false, cacheControl: false, acceptRanges: false, preCompressed: true } as const;
  await server.register(fastifyStatic, { ...options, root: dashboardDir });
  const sendPage = (reply: FastifyReply, options = {}) => {
    ignoreHeaders(reply, IGNORED_HEADERS);
    return reply.headers({ ...HEADERS, 'cache-control': 'no-cache' }).sendFile('index.html', options);
  };
  server.get('/', { schema, config }, (_request, reply) => sendPage(reply));
  for (const page of DASHBOARD_PAGES) {
    server.get(`/${page}`, { schema, config }, (_request, reply) => sendPage(reply));
    server.get(`/${page}/*`, { schema, config }, (_request, reply) => sendPage(reply));
  }
  server.get<{ Params: { '*': string } }>('/assets/*', { schema, config }, ({ params }, reply) => {
    const file = params['*'];
    // A name of a built file has one part. This also refuses `..` in every spelling, because it is decoded here.
    if (!ASSET.test(file)) throw unknownPath();
    ignoreHeaders(reply, IGNORED_HEADERS);
    return reply.headers(HEADERS).sendFile(`assets/${file}`, FOR_EVER);
  });
  // A browser shows people the dashboard's own "no such page". Other clients get the error of the API.
  server.get<{ Params: { '*': string } }>('/*', { schema, config }, (request, reply) => {
    reply.header('vary', 'accept');
    // The part of the path is decoded and has no host, also when the request line has a whole URL.
    const wantsPage = request.headers.accept?.includes('text/html') && !NOT_PAGES.test(request.params['*']);
    if (!wantsPage) throw unknownPath();
    ignoreHeaders(reply, NOT_FOUND_IGNORED);
    return sendPage(reply.code(404), NOT_FOUND_OPTIONS).header('vary', 'accept, accept-encoding');
  });
}

function ignoreHeaders({ request }: FastifyReply, names: readonly string[]): void {
  for (const name of names) delete request.raw.headers[name];
}

const unknownPath = () => new ServiceError('not_found', 'There is nothing at this path.');
