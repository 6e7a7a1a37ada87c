// Makes a schema of Kubernetes refuse fields that it does not know. Kubernetes itself drops such fields silently.

export type Schema = {
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  [name: string]: unknown;
};

/** A copy of the schema in which objects with known fields have no other ones. */
export function strict(schema: Schema): Schema {
  const { properties, items, additionalProperties } = schema;
  const isOpen = additionalProperties !== undefined || schema['x-kubernetes-preserve-unknown-fields'] === true;
  return {
    ...schema,
    ...(items === undefined ? {} : { items: strict(items) }),
    ...(typeof additionalProperties === 'object' ? { additionalProperties: strict(additionalProperties) } : {}),
    ...(properties === undefined
      ? {}
      : {
          properties: Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, strict(value)])),
          ...(isOpen ? {} : { additionalProperties: false }),
        }),
  };
}
