// Writes the API reference from the OpenAPI document: a page for each tag, and one for all objects.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { explain, fieldsOf, type Schema, typeOf } from './api-schema.ts';
import { anchor, cell, code, prose, table } from './markdown.ts';

type Content = Record<string, { schema?: Schema; example?: unknown }>;
type Parameter = { name: string; in: string; required?: boolean; description?: string; schema: Schema };
type Operation = {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Content };
  responses: Record<string, { description?: string; content?: Content }>;
  security?: Record<string, string[]>[];
};
type Document = {
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
};

/** The pages by their file names, such as `machines.md`. */
export function apiPages(checkout: string): Map<string, string> {
  const document = JSON.parse(readFileSync(path.join(checkout, 'openapi/openapi.json'), 'utf8')) as Document;
  const pages = new Map(document.tags.map((tag) => [`${anchor(tag.name)}.md`, pageOf(document, tag)]));
  pages.set('objects.md', objectsPage(document.components.schemas));
  return pages;
}

/** The tags in the order of the document, for the sidebar. */
export function apiTags(checkout: string): { name: string; page: string }[] {
  const document = JSON.parse(readFileSync(path.join(checkout, 'openapi/openapi.json'), 'utf8')) as Document;
  return document.tags.map(({ name }) => ({ name, page: anchor(name) }));
}

function pageOf(document: Document, { name, description }: { name: string; description: string }): string {
  const sections = Object.entries(document.paths).flatMap(([route, methods]) =>
    Object.entries(methods)
      .filter(([, operation]) => operation.tags.includes(name))
      .map(([method, operation]) => sectionOf(method, route, operation)),
  );
  return [`# ${name}\n`, `${prose(description)}\n`, ...sections].join('\n');
}

function sectionOf(method: string, route: string, operation: Operation): string {
  const { summary, description = '', parameters = [], requestBody, responses } = operation;
  const parts = [`## ${summary}\n`, `\`${method.toUpperCase()} ${route}\` · ${accessOf(operation)}\n`];
  parts.push(`${prose(description)}\n`);
  const rows = parameters.map((parameter) => [
    `${code(parameter.name)}${parameter.required ? ' **required**' : ''}`,
    parameter.in,
    typeOf(parameter.schema),
    explain(parameter.schema, parameter.description),
  ]);
  if (rows.length > 0) parts.push('**Parameters**\n', table(['name', 'in', 'type', 'meaning'], rows));
  if (requestBody) parts.push(bodyOf(requestBody.content));
  parts.push('**Answers**\n', answersOf(responses));
  return parts.join('\n');
}

/** Says which credentials may call the operation. */
function accessOf({ security = [] }: Operation): string {
  if (security.length === 0) return 'no credential needed';
  const scopes = security.flatMap((choice) => choice.bearer ?? []);
  if (scopes.length === 0) return 'dashboard session only';
  return `API key of scope ${scopes.map((scope) => `\`${scope}\``).join(' or ')}`;
}

function bodyOf(content: Content): string {
  const parts = Object.entries(content).map(([type, { schema = {}, example }]) => {
    const shape = schema.properties ? fieldsOf(schema) : `${typeOf(schema)}\n`;
    return `**Body**, \`${type}\`: ${shape.startsWith('|') ? '\n\n' : ''}${shape}${json(example)}`;
  });
  return parts.join('\n');
}

const json = (example: unknown) =>
  example === undefined ? '' : `\n\`\`\`json\n${JSON.stringify(example, null, 2)}\n\`\`\`\n`;

/** A table of the possible statuses, then an example of the answer. Error codes link to the page of the error codes. */
function answersOf(responses: Operation['responses']): string {
  const rows = Object.entries(responses).map(([status, { description = '', content = {} }]) => {
    const shapes = Object.entries(content).map(([type, { schema = {} }]) =>
      type === 'application/json' ? typeOf(schema) : code(type),
    );
    const isError = Number(status) >= 400;
    const text = isError ? cell(description).replaceAll(/`([a-z_]+)`/g, '[$1](../errors.md#$1)') : shapes.join(', ');
    return [status, text || 'no body'];
  });
  const success = Object.entries(responses).find(([status]) => status.startsWith('2'))?.[1];
  return `${table(['status', 'answer'], rows)}${json(success?.content?.['application/json']?.example)}`;
}

function objectsPage(schemas: Record<string, Schema>): string {
  const sections = Object.entries(schemas).map(
    ([name, schema]) => `## ${name}\n\n${prose(schema.description ?? '')}\n\n${fieldsOf(schema)}`,
  );
  return ['# Objects\n', 'The shapes of bodies and answers.\n', ...sections].join('\n');
}
