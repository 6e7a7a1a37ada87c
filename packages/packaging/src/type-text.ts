// Writes a JSON Schema of the API as a TypeScript type with its descriptions, so that the declarations of the SDK need no
// library for schemas and an editor shows what each field means.

/** The keywords that the schemas of the API use. */
export type Schema = {
  title?: string;
  description?: string;
  default?: unknown;
  type?: string | readonly string[];
  const?: unknown;
  enum?: readonly unknown[];
  anyOf?: readonly Schema[];
  items?: Schema;
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
  patternProperties?: Readonly<Record<string, Schema>>;
  additionalProperties?: boolean | Schema;
};

/**
 * Returns the TypeScript text of a schema. A nested schema whose title is in `names` becomes a reference to that name.
 * Throws Error for a schema that it cannot express.
 */
export function typeText(schema: Schema, names: ReadonlySet<string> = new Set()): string {
  return text(schema, { own: schema, names }, '');
}

type Context = { own: Schema; names: ReadonlySet<string> };

function text(schema: Schema, context: Context, indent: string): string {
  const { title } = schema;
  if (schema !== context.own && title !== undefined && context.names.has(title)) return title;
  if (schema.enum !== undefined) return union(schema.enum.map((value) => JSON.stringify(value)));
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf !== undefined) return union(schema.anyOf.map((part) => text(part, context, indent)));
  const { type } = schema;
  if (Array.isArray(type)) return union(type.map((one: string) => text({ ...schema, type: one }, context, indent)));
  switch (type) {
    case 'string':
    case 'boolean':
    case 'null':
      return type;
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return arrayOf(text(schema.items ?? {}, context, indent));
    case 'object':
      return object(schema, context, indent);
    case undefined:
      return 'unknown';
    default:
      throw new Error(`no TypeScript type is known for ${JSON.stringify(schema)}`);
  }
}

const union = (parts: readonly string[]): string => [...new Set(parts)].join(' | ');

const arrayOf = (item: string): string => (/^[\w.]+$/.test(item) ? `${item}[]` : `Array<${item}>`);

function object(schema: Schema, context: Context, indent: string): string {
  const { properties, required = [], patternProperties, additionalProperties } = schema;
  if (properties === undefined) {
    const values = Object.values(patternProperties ?? {})[0] ?? additionalProperties;
    return `Record<string, ${typeof values === 'object' ? text(values, context, indent) : 'unknown'}>`;
  }
  const inner = `${indent}  `;
  const lines = Object.entries(properties).map(([name, field]) => {
    const key = /^\w+$/.test(name) ? name : JSON.stringify(name);
    return `${comment(field, inner)}${inner}${key}${required.includes(name) ? '' : '?'}: ${text(field, context, inner)};`;
  });
  return `{\n${lines.join('\n')}\n${indent}}`;
}

/** The doc comment of a field, with its description and default. */
function comment({ description, default: value }: Schema, indent: string): string {
  const words = [
    description,
    value === undefined || description?.includes('efault') ? undefined : `Default: ${JSON.stringify(value)}.`,
  ].filter((part) => part !== undefined);
  return words.length === 0 ? '' : `${indent}/** ${words.join(' ').replaceAll('*/', '*\\/')} */\n`;
}
