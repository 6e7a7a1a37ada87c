// Answers at the host name of a port that come from the service and not from the machine: JSON for programs, a page for
// browsers. The page loads nothing and runs no script. It reloads itself when the next attempt may succeed.
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { errorBody, toServiceError } from '../http/errors.ts';
import { REQUEST_ID_HEADER, requestIdOf } from '../http/request-id.ts';
import type { Log } from '../log.ts';

/** Errors after which a later attempt may succeed, because the program or the machine starts or the host comes back. */
const PASSING: ReadonlySet<ErrorCode> = new Set([
  'port_not_open',
  'conflict',
  'rate_limited',
  'host_unavailable',
  'shutting_down',
  'database_unavailable',
]);
const RELOAD_SEC = 2;

const TITLES: Partial<Record<ErrorCode, string>> = {
  port_not_open: 'Nothing answers here yet',
  conflict: 'The machine is not running',
  unauthenticated: 'This page is private',
  not_found: 'There is nothing here',
};

/** Sends an error. Ends the connection instead if a response has begun already. */
export function refuse(error: unknown, request: IncomingMessage, response: ServerResponse, log: Log): void {
  const told = toServiceError(error);
  if (told.code === 'internal_error') log.error({ err: told.cause ?? told }, 'a request to a port failed');
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const requestId = requestIdOf(request);
  const page = wantsPage(request) ? pageOf(told) : undefined;
  const body = page?.html ?? JSON.stringify(errorBody(told, requestId));
  // Close the connection if the rest of the body was not read, or if the request was invalid, because then nobody knows
  // where the next request begins.
  if (!request.complete || told.code === 'validation_error') response.shouldKeepAlive = false;
  response.writeHead(told.status, {
    'content-type': page ? 'text/html; charset=utf-8' : 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'content-security-policy': page?.policy ?? "default-src 'none'; frame-ancestors 'self'",
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    [REQUEST_ID_HEADER]: requestId,
    ...(told.code === 'unauthenticated' ? { 'www-authenticate': 'Bearer realm="sandbar"' } : {}),
    ...(told.retryAfterSec === undefined ? {} : { 'retry-after': String(told.retryAfterSec) }),
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}

function wantsPage({ method, headers }: IncomingMessage): boolean {
  return (method === 'GET' || method === 'HEAD') && headers.accept?.includes('text/html') === true;
}

function pageOf({ code, message }: ServiceError): { html: string; policy: string } {
  const nonce = randomBytes(16).toString('base64');
  const isPassing = PASSING.has(code);
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
${isPassing ? `<meta http-equiv="refresh" content="${RELOAD_SEC}">` : ''}
<title>${escapeHtml(TITLES[code] ?? 'This did not work')}</title>
<style nonce="${nonce}">
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 20vh auto 0; padding: 0 1.5rem }
h1 { font-size: 1.25rem }
p { opacity: .8; overflow-wrap: anywhere }
</style>
</head>
<body>
<h1>${escapeHtml(TITLES[code] ?? 'This did not work')}</h1>
<p>${escapeHtml(message)}</p>
${isPassing ? '<p>This page tries again by itself.</p>' : ''}
</body>
</html>
`;
  return { html, policy: `default-src 'none'; style-src 'nonce-${nonce}'; frame-ancestors 'self'; base-uri 'none'` };
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

/** The text may contain names of programs in the machine, which may contain any character, so escape it. */
const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? '');
