// Checks that every JSON route needs and that a schema cannot express: the database can store the text, the nesting is
// limited, numbers in queries are numbers, and the request has no parameters or body that the route does not declare.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyInstance, FastifyRequest, RouteOptions } from 'fastify';

const NO_PARAMETERS = { type: 'object', properties: {}, additionalProperties: false };
/** Deeper than any real document, but shallow enough that recursive functions do not overflow the stack. */
const MAX_DEPTH = 64;
/**
 * An integer of any size. The schema limits its value; if the schema does not (`page_size` of the feed), the route
 * does.
 */
const INTEGER = /^-?\d{1,300}$/;

/** Adds the checks to all routes that are added afterwards. */
export function installStrictness(server: FastifyInstance): void {
  server.addHook('onRoute', (route: RouteOptions) => {
    if (route.config?.lenient) return;
    route.schema = { ...route.schema, querystring: route.schema?.querystring ?? NO_PARAMETERS };
  });
  server.addHook('preValidation', async (request) => {
    const { config, schema } = request.routeOptions;
    if (request.is404 || config.lenient) return;
    checkText(request.query, 'query');
    request.query = coerceParameters(request.query, schema?.querystring);
    if (config.rawBody) return;
    if (schema?.body) {
      if (request.body === undefined) request.body = {};
      checkText(request.body, 'body');
    } else if (config.binaryRequest === undefined && !isEmpty(request.body)) {
      throw new ServiceError('validation_error', 'This operation takes no body.');
    }
  });
}

const isEmpty = (body: unknown): boolean =>
  body === undefined || body === null || (typeof body === 'object' && Object.keys(body).length === 0);

/**
 * Checks every key and string at any depth: PostgreSQL's text and jsonb can store neither a NUL character nor half of a
 * surrogate pair. Throws `validation_error`.
 */
export function checkText(root: unknown, what: 'body' | 'query'): void {
  const stack: { value: unknown; name: string; depth: number }[] = [{ value: root, name: '', depth: 0 }];
  for (let entry = stack.pop(); entry; entry = stack.pop()) {
    const { value, name, depth } = entry;
    if (typeof value === 'string') {
      if (!isCleanText(value)) throw badText(name, what);
    } else if (typeof value === 'object' && value !== null) {
      if (depth >= MAX_DEPTH)
        throw new ServiceError('validation_error', `The ${what} is nested over ${MAX_DEPTH} deep.`);
      for (const [key, child] of Object.entries(value)) {
        if (!isCleanText(key)) throw badText(name, what);
        stack.push({ value: child, name: depth === 0 ? key : name, depth: depth + 1 });
      }
    }
  }
}

const isCleanText = (text: string): boolean => !text.includes('\0') && text.isWellFormed();

const badText = (name: string, what: string): ServiceError =>
  new ServiceError(
    'validation_error',
    `${name === '' ? `The ${what}` : name.slice(0, 80)} must hold no NUL character and only well-formed Unicode.`,
  );

/**
 * Query parameters are text. Converts the parameters that the schema declares as integer or boolean, if their text is
 * an integer or boolean.
 */
function coerceParameters(query: FastifyRequest['query'], schema: unknown): unknown {
  const properties = isRecord(schema) && isRecord(schema.properties) ? schema.properties : {};
  return Object.fromEntries(
    Object.entries(isRecord(query) ? query : {}).map(([name, value]) => [name, coerce(value, properties[name])]),
  );
}

function coerce(value: unknown, property: unknown): unknown {
  if (typeof value !== 'string' || !isRecord(property)) return value;
  if (property.type === 'integer' && INTEGER.test(value)) return Number(value);
  if (property.type === 'boolean' && (value === 'true' || value === 'false')) return value === 'true';
  return value;
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
