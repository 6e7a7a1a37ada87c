// Shortens the JSON Schemas of the tools. Clients put the list of tools into the context of their model, so each word
// of the schemas costs tokens in every conversation.
import type { StandardSchemaWithJSON } from '@modelcontextprotocol/server';

type JsonSchema = Record<string, unknown>;

/** Returns the same schema for arguments. Its JSON Schema leaves out keywords that agents do not need. */
export function listedInput<Schema extends StandardSchemaWithJSON>(schema: Schema): StandardSchemaWithJSON {
  return withJson(schema, (json) => without(json, ['$schema', 'propertyNames']));
}

/** Returns the same schema for results. Its JSON Schema does not list the required fields, to be shorter. */
export function listedOutput<Schema extends StandardSchemaWithJSON>(schema: Schema): StandardSchemaWithJSON {
  return withJson(schema, (json) => without(json, ['$schema', 'additionalProperties', 'required']));
}

function withJson(schema: StandardSchemaWithJSON, shorten: (json: JsonSchema) => JsonSchema): StandardSchemaWithJSON {
  const { jsonSchema, ...standard } = schema['~standard'];
  return {
    '~standard': {
      ...standard,
      jsonSchema: {
        input: (options) => shorten(jsonSchema.input(options)),
        output: (options) => shorten(jsonSchema.output(options)),
      },
    },
  };
}

/** Copies a schema without these keywords, also in nested schemas. Properties with the same names stay. */
function without(schema: JsonSchema, keywords: readonly string[]): JsonSchema {
  const kept = Object.entries(schema).filter(([keyword]) => !keywords.includes(keyword));
  return Object.fromEntries(kept.map(([keyword, value]) => [keyword, shortened(keyword, value, keywords)]));
}

function shortened(keyword: string, value: unknown, keywords: readonly string[]): unknown {
  if (keyword === 'properties') {
    const entries = Object.entries(value as Record<string, JsonSchema>);
    return Object.fromEntries(entries.map(([name, schema]) => [name, without(schema, keywords)]));
  }
  return keyword === 'items' ? without(value as JsonSchema, keywords) : value;
}
