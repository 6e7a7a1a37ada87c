// Tests that the committed OpenAPI document matches the routes and is complete.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { ERROR_TABLE } from '@sandbar/contract/errors.ts';
import fastify from 'fastify';
import type { App } from '../src/app.ts';
import { installAuth } from '../src/http/auth.ts';
import { describeApis } from '../src/openapi/describe.ts';
import { DOCUMENT_PATHS } from '../src/openapi/write.ts';
import { PUBLIC_OPERATIONS } from './support/public-operations.ts';

type Response = { description: string; content?: Record<string, { example?: unknown; schema?: unknown }> };
type Operation = {
  operationId: string;
  summary: string;
  tags: string[];
  security: unknown[];
  requestBody?: { content: Record<string, { example?: unknown; schema?: unknown }> };
  responses: Record<string, Response>;
};
type Document = {
  components: { schemas: Record<string, unknown> };
  paths: Record<string, Record<string, Operation>>;
  tags: { name: string; description: string }[];
};
const documents = (await describeApis()) as { api: Document; admin: Document };
const KINDS = ['api', 'admin'] as const;
const operationsOf = ({ paths }: Document): Operation[] =>
  Object.values(paths).flatMap((methods) => Object.values(methods));
const operations = KINDS.flatMap((kind) => operationsOf(documents[kind]));

/** Whether a body is bytes, which have no example. */
const isBinary = ({ content = {} }: { content?: Record<string, { schema?: unknown }> }): boolean =>
  Object.values(content).every(({ schema }) => schema === undefined);

describe('openapi.json and admin.json', () => {
  it('are up to date (else: npm run openapi)', async () => {
    for (const kind of KINDS) {
      assert.equal(await readFile(DOCUMENT_PATHS[kind], 'utf8'), `${JSON.stringify(documents[kind], null, 2)}\n`);
    }
  });

  it("keep the operator's routes apart from the public API", () => {
    assert.deepEqual(
      Object.keys(documents.api.paths).filter((path) => !path.startsWith('/v1/')),
      [],
    );
    assert.deepEqual(
      Object.keys(documents.admin.paths).filter((path) => !path.startsWith('/admin/v1/')),
      [],
    );
    for (const { security } of operationsOf(documents.admin)) assert.deepEqual(security, [{ session: [] }]);
    for (const name of ['HostSummary', 'Audit', 'AccountDetails']) {
      assert.equal(documents.api.components.schemas[name], undefined);
    }
  });

  it('give every operation a name, a credential, its errors and an example', () => {
    assert.equal(new Set(operations.map((operation) => operation.operationId)).size, operations.length);
    for (const operation of operations) {
      const { operationId, summary, tags, security, requestBody, responses } = operation;
      assert(operationId && summary && tags.length === 1, operationId);
      const isPublic = security.length === 0;
      assert.equal(isPublic, PUBLIC_OPERATIONS.includes(operationId), operationId);
      for (const status of ['400', '500', '503', ...(isPublic ? [] : ['401'])]) {
        assert(responses[status], `${operationId} ${status}`);
      }
      const [, success] = Object.entries(responses).find(([status]) => /^(101|[23])/.test(status)) ?? [];
      assert(success || operationId === 'retiredExec', operationId);
      if (success?.content && !isBinary(success)) assert(success.content['application/json']?.example, operationId);
      if (requestBody && !isBinary(requestBody)) {
        assert(requestBody.content['application/json']?.example, operationId);
      }
    }
  });

  it('describe every tag that an operation has', () => {
    for (const kind of KINDS) {
      const described = documents[kind].tags.map(({ name }) => name);
      assert.deepEqual(new Set(described), new Set(operationsOf(documents[kind]).flatMap(({ tags }) => tags)));
    }
  });

  it('have every reference that they use', () => {
    for (const document of KINDS.map((kind) => documents[kind])) {
      const { schemas } = document.components;
      const used = JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g);
      for (const [, name] of used) assert(schemas[name ?? '']);
      assert(schemas.Error);
    }
  });

  it('name every code that an operation can answer', () => {
    const text = JSON.stringify(operations.map((operation) => operation.responses));
    // No operation answers these two. The server answers 405 for a method that the path does not have, and 502 at the
    // addresses of the ports of machines.
    const others = ['method_not_allowed', 'port_not_open'];
    for (const code of Object.keys(ERROR_TABLE).filter((code) => !others.includes(code))) {
      assert(text.includes(`\`${code}\``), code);
    }
  });
});

describe('a route without a declared access', () => {
  it('fails to start', () => {
    const server = fastify();
    installAuth(server, { config: { secret: '' } } as App);
    assert.throws(() => server.get('/forgotten', async () => 'x'), /GET \/forgotten does not declare config.access/);
  });
});
