// Completes the document that @fastify/swagger collected: schemas with a title become components, and every operation
// gets its credentials, its errors with the texts of the error table, and its examples.
import { ERROR_TABLE, type ErrorCode } from '@sandbar/contract/errors.ts';
import { ErrorBody } from '@sandbar/contract/fields.ts';
import type { Access } from '../http/route-config.ts';
import { errorCodesOf, isLimited, type OperationFacts } from './operation.ts';

type Json = Record<string, unknown>;
type Media = { schema?: unknown; example?: unknown };
type Response = { description: string; headers?: Json; content?: Record<string, Media> };
type Operation = Json & {
  operationId: string;
  summary: string;
  parameters?: Json[];
  requestBody?: { required?: boolean; content: Record<string, Media> };
  responses: Record<string, Response>;
};
export type Document = Json & {
  components: Json & { schemas: Json };
  paths: Record<string, Record<string, Operation>>;
};

const JSON_MEDIA = 'application/json';
const REQUEST_ID = { 'X-Request-Id': { $ref: '#/components/headers/RequestId' } };
const RETRY_AFTER = { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } };
const RATE_LIMIT = {
  'RateLimit-Limit': { $ref: '#/components/headers/RateLimitLimit' },
  'RateLimit-Remaining': { $ref: '#/components/headers/RateLimitRemaining' },
  'RateLimit-Reset': { $ref: '#/components/headers/RateLimitReset' },
};
const HEADERS = {
  RequestId: { description: 'Names this request in our log.', schema: { type: 'string' } },
  RetryAfter: { description: 'Seconds after which a retry makes sense.', schema: { type: 'integer' } },
  RateLimitLimit: { description: 'Requests that may come at once.', schema: { type: 'integer' } },
  RateLimitRemaining: { description: 'Requests of those that are left now.', schema: { type: 'integer' } },
  RateLimitReset: { description: 'Seconds until all of them are there again.', schema: { type: 'integer' } },
};

/** Completes the document in place and returns it. */
export function finishDocument(document: Document, operations: ReadonlyMap<string, OperationFacts>): Document {
  for (const methods of Object.values(document.paths)) {
    for (const operation of Object.values(methods)) {
      const facts = operations.get(operation.operationId);
      if (facts) finishOperation(operation, facts);
    }
  }
  document.components.headers = HEADERS;
  const schemas: Json = {};
  document.paths = hoist(document.paths, schemas) as Document['paths'];
  document.components.schemas = Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => a.localeCompare(b)));
  return document;
}

function finishOperation(operation: Operation, facts: OperationFacts): void {
  const { config, schema } = facts;
  operation.security = securityOf(config.access);
  if (config.rawBody) operation.requestBody = RAW_BODY;
  else if (operation.requestBody) {
    operation.requestBody.required = !config.bodyIsOptional;
    const media = operation.requestBody.content[JSON_MEDIA];
    if (media && config.examples?.request !== undefined) media.example = config.examples.request;
  }
  if (hasMetadataFilters(schema.querystring)) {
    operation.parameters = [...(operation.parameters ?? []), METADATA_FILTER];
  }
  // OpenAPI 3.1 describes bytes by a media type without a schema.
  if (config.binaryRequest !== undefined) {
    operation.requestBody = { required: !config.bodyIsOptional, content: { [config.binaryRequest]: {} } };
  }
  if (config.binaryResponse !== undefined) {
    const content = { [config.binaryResponse]: {} };
    operation.responses['200'] = { description: operation.summary, content };
  }
  const headers = isLimited(config) ? { ...REQUEST_ID, ...RATE_LIMIT } : REQUEST_ID;
  const success: Record<string, Response> = {};
  for (const [status, response] of Object.entries(operation.responses)) {
    if (status === 'default') continue;
    if (response.content === undefined) {
      // The library adds an empty 200 where a route declares no such response; leave it out.
      if (status !== '200') success[status] = { ...response, headers };
      continue;
    }
    const media = response.content[JSON_MEDIA];
    if (media && config.examples?.response !== undefined) media.example = config.examples.response;
    if (config.producesEvents) response.content['text/event-stream'] = { schema: { type: 'string' } };
    if (config.producesCsv) response.content['text/csv'] = { schema: { type: 'string' } };
    success[status] = { ...response, description: operation.summary, headers };
  }
  for (const [status, { description, isBinary }] of Object.entries(config.furtherStatuses ?? {})) {
    const content = isBinary ? { content: { ...operation.responses['200']?.content } } : {};
    success[status] = { description, headers, ...content };
  }
  operation.responses = { ...success, ...errorResponses(errorCodesOf(facts), headers) };
}

/** The body of an operation that takes bytes. OpenAPI 3.1 describes bytes by a media type without a schema. */
const RAW_BODY = {
  // No body is the same as an empty one.
  required: false,
  description: 'Bytes of any length; the content type does not matter.',
  content: { 'application/octet-stream': {} },
};

/**
 * Returns the credentials that an operation accepts. A session may do everything that a key may, and some operations
 * accept only a session.
 */
function securityOf(access: Access | undefined): Json[] {
  if (access === 'public' || access === undefined) return [];
  if (access === 'session' || access === 'operator') return [{ session: [] }];
  return [{ bearer: [access] }, { session: [] }];
}

/** The error responses, one for each status; several error codes can share a status. */
function errorResponses(codes: readonly ErrorCode[], headers: Json): Record<string, Response> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes) {
    const { status } = ERROR_TABLE[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, sharing]) => [
      String(status),
      {
        description: sharing.map((code) => `\`${code}\`: ${ERROR_TABLE[code].when}`).join('\n\n'),
        headers: status === 503 || status === 429 ? { ...headers, ...RETRY_AFTER } : headers,
        content: {
          [JSON_MEDIA]: {
            schema: structuredClone(ErrorBody),
            example: { detail: ERROR_TABLE[sharing[0] ?? 'internal_error'].when, code: sharing[0] },
          },
        },
      },
    ]),
  );
}

/** With `explode` each property of the object is a query parameter of its own, and the name `metadata` is not sent. */
const METADATA_FILTER = {
  name: 'metadata',
  in: 'query',
  required: false,
  style: 'form',
  explode: true,
  description: 'metadata.KEY=VALUE: machines whose metadata has this value, as text. May be given for several keys.',
  schema: {
    type: 'object',
    patternProperties: { '^metadata\\.[\\s\\S]': { type: 'string' } },
    additionalProperties: false,
  },
};

const hasMetadataFilters = (querystring: unknown): boolean =>
  typeof querystring === 'object' && querystring !== null && 'patternProperties' in querystring;

/**
 * Moves every schema with a title into `schemas` and puts a reference in its place. Examples are data and are not
 * searched.
 */
function hoist(node: unknown, schemas: Json): unknown {
  if (Array.isArray(node)) return node.map((item) => hoist(item, schemas));
  if (typeof node !== 'object' || node === null) return node;
  const copy: Json = {};
  for (const [key, value] of Object.entries(node)) copy[key] = key === 'example' ? value : hoist(value, schemas);
  const { title, ...schema } = copy;
  if (typeof title !== 'string' || !('type' in schema)) return copy;
  schemas[title] = schema;
  return { $ref: `#/components/schemas/${title}` };
}
