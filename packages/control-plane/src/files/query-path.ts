// Reads the query parameter `path` as bytes. Fastify decodes queries as UTF-8 and cannot represent a name that is not
// valid UTF-8, so this takes the parameter from the raw URL. Afterwards `request.query.path` is the percent-encoded
// path.
import { checkPath, decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import type { FastifyRequest } from 'fastify';

/**
 * A preValidation hook. It replaces `path` by its percent-encoded form, in which the guest agent takes it. Throws
 * `validation_error`. A query without `path`, or with two, is left to the schema.
 */
export async function readQueryPath(request: FastifyRequest): Promise<void> {
  const query = request.query as Record<string, unknown>;
  if (typeof query.path !== 'string') return;
  const path = decodePath(rawParameter(request.raw.url ?? '', 'path'));
  checkPath(path);
  query.path = encodePath(path);
}

/** The undecoded value of a parameter that the URL has once. In a query a `+` stands for a space. */
function rawParameter(url: string, name: string): string {
  const query = url.slice(url.indexOf('?') + 1);
  for (const pair of query.split('&')) {
    const at = pair.indexOf('=');
    const key = at < 0 ? pair : pair.slice(0, at);
    if (Buffer.from(decodePath(key)).toString() === name) return at < 0 ? '' : pair.slice(at + 1).replaceAll('+', ' ');
  }
  return '';
}
