// Describes the JSON schemas of the OpenAPI document in words, for the pages of the API reference.
import { cell, code, table } from './markdown.ts';

export type Schema = {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
};

const nameOf = (ref: string) => ref.slice(ref.lastIndexOf('/') + 1);

/** The name of a component, with a link to where it is described. */
function linkTo(ref: string): string {
  return `[${nameOf(ref)}](./objects.md#${nameOf(ref).toLowerCase()})`;
}

/** Names the type of a value, for example `integer` or `array of [Machine](…)`. */
export function typeOf(schema: Schema): string {
  if (schema.$ref) return linkTo(schema.$ref);
  const choices = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (choices) return [...new Set(choices.map(typeOf))].join(' or ');
  if (schema.const !== undefined) return code(JSON.stringify(schema.const));
  if (schema.enum) return schema.enum.map((value) => code(JSON.stringify(value))).join(', ');
  if (schema.type === 'array') return `array of ${schema.items ? typeOf(schema.items) : 'anything'}`;
  const type = Array.isArray(schema.type) ? schema.type.join(' or ') : (schema.type ?? 'any');
  if (type === 'object' && typeof schema.additionalProperties === 'object' && schema.additionalProperties.type) {
    return `object of ${typeOf(schema.additionalProperties)}`;
  }
  return schema.format ? `${type} (${schema.format})` : type;
}

/** The bounds and the default of a value, as a sentence; empty when it has none. */
function boundsOf(schema: Schema): string {
  const parts: string[] = [];
  const { minimum, maximum, maxLength } = schema;
  if (minimum !== undefined && maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER) {
    parts.push(`${minimum} to ${maximum}`);
  } else if (minimum !== undefined) parts.push(`at least ${minimum}`);
  if (maxLength !== undefined) parts.push(`at most ${maxLength} characters`);
  if (schema.default !== undefined) parts.push(`default ${code(JSON.stringify(schema.default))}`);
  return parts.length === 0 ? '' : ` ${parts.join('; ')}.`;
}

/** What a table says about one value: description, bounds, default. */
export function explain(schema: Schema, description = schema.description ?? ''): string {
  return cell(`${description}${boundsOf(schema)}`.trim());
}

/** A table of the fields of an object. For a schema that is not an object, its type. */
export function fieldsOf(schema: Schema): string {
  const required = new Set(schema.required);
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => [
    `${code(name)}${required.has(name) ? ' **required**' : ''}`,
    typeOf(field),
    explain(field),
  ]);
  return rows.length > 0 ? table(['field', 'type', 'meaning'], rows) : `${typeOf(schema)}\n`;
}
