// Turns an error of the schema validator into one sentence that names the field and says which values are allowed. The
// sentence never quotes the given value, because that may be secret or large.
import { describeText } from '@sandbar/contract/patterns.ts';
import type { FastifySchemaValidationError } from 'fastify';

type Schema = Record<string, unknown>;
/** With the option `verbose` Ajv also gives the schema that contains the failing keyword (`parentSchema`). */
type Failure = FastifySchemaValidationError & { parentSchema?: Schema };

const MAX_NAME = 80;

/**
 * The sentence for the first failure. `part` is Fastify's name for what was validated: body, querystring, params or
 * headers.
 */
export function describeFailure(failures: readonly Failure[], part: string | undefined): string {
  // The failures of the parts of a `oneOf` or `propertyNames` come before the failure of the whole keyword. The failure
  // of the whole keyword says more, so prefer it.
  const failure = failures.find(({ keyword }) => keyword === 'oneOf' || keyword === 'propertyNames') ?? failures[0];
  if (!failure) return 'The request is invalid.';
  const place = part === 'querystring' ? 'query parameter' : 'field';
  const path = fieldPath(failure.instancePath);
  switch (failure.keyword) {
    case 'additionalProperties': {
      const name = shorten([path, String(failure.params.additionalProperty)].filter(Boolean).join('.'));
      return `Unknown ${place} ${JSON.stringify(name)}; ${knownNames(failure.parentSchema)}.`;
    }
    case 'required':
      return `${[path, String(failure.params.missingProperty)].filter(Boolean).join('.')} is required.`;
    case 'oneOf':
      return `Exactly one of ${alternatives(failure.parentSchema)} must be given.`;
    case 'not':
      return `${excluding(failure.parentSchema)} exclude each other: give one of them.`;
    case 'propertyNames':
      return `${shorten(path)} must have names that are ${namesOf(failure.parentSchema)}.`;
    default:
      return `${path === '' ? 'The body' : shorten(path)} must be ${describeSchema(failure.parentSchema ?? {})}.`;
  }
}

/** What a schema allows, in words that follow "must be". */
export function describeSchema(schema: Schema): string {
  if (Array.isArray(schema.enum)) return `one of ${schema.enum.join(', ')}`;
  switch (schema.type) {
    case 'integer':
      return `an integer${between(schema.minimum, schema.maximum, '')}`;
    case 'string':
      return describeString(schema);
    case 'array':
      return `an array${between(schema.minItems, schema.maxItems, ' items')}`;
    case 'object':
      return `an object${between(undefined, schema.maxProperties, ' entries')}`;
    case 'boolean':
      return 'true or false';
    default:
      return Array.isArray(schema.type) ? schema.type.map(describeType(schema)).join(' or ') : 'of the documented type';
  }
}

const describeType = (schema: Schema) => (type: unknown) =>
  type === 'null' ? 'null' : describeSchema({ ...schema, type });

function describeString(schema: Schema): string {
  const lengths = between(schema.minLength, schema.maxLength, ' characters');
  return describeText(schema, lengths) ?? `a string${lengths}`;
}

/** Lists the fields of which exactly one must be given, from a `oneOf` whose branches are `required`. */
function alternatives(schema: Schema | undefined): string {
  const branches = Array.isArray(schema?.oneOf) ? (schema.oneOf as { required?: string[] }[]) : [];
  return branches.map(({ required = [] }) => required.join(' with ')).join(' and ');
}

/** Lists the fields that must not be given together, from a `not` around `required`. */
function excluding(schema: Schema | undefined): string {
  const { required = [] } = (schema?.not ?? {}) as { required?: string[] };
  return required.join(' and ');
}

function namesOf(schema: Schema | undefined): string {
  const { description } = (schema?.propertyNames ?? {}) as Schema;
  return typeof description === 'string' ? description : 'as documented';
}

function between(min: unknown, max: unknown, unit: string): string {
  const joint = unit === '' ? ' ' : ' of ';
  if (min !== undefined && max !== undefined) return `${joint}${unit === '' ? 'from ' : ''}${min} to ${max}${unit}`;
  if (min !== undefined) return `${joint}at least ${min}${unit}`;
  if (max !== undefined) return `${joint}at most ${max}${unit}`;
  return '';
}

function knownNames(schema: Schema | undefined): string {
  const properties = schema?.properties;
  const names = typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
  return names.length === 0 ? 'none is allowed here' : `allowed are ${names.join(', ')}`;
}

/** Writes a JSON pointer as people do: `/env/PATH` becomes `env.PATH`, and `/argv/0` becomes `argv.0`. */
function fieldPath(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .join('.');
}

const shorten = (name: string): string => (name.length > MAX_NAME ? `${name.slice(0, MAX_NAME)}…` : name);
