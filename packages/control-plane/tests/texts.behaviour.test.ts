// Tests that refusals are understandable sentences, and that names such as `__proto__` in a client's input are treated
// like any other.
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { describeSchema } from '../src/http/validation.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api } = bed;

describe('a refusal', () => {
  it('has words for every pattern and format of the contract', async () => {
    const folder = dirname(fileURLToPath(import.meta.resolve('@sandbar/contract/fields.ts')));
    const schemas: Record<string, unknown>[] = [];
    for (const file of globSync('*.ts', { cwd: folder })) collect(await import(join(folder, file)), schemas);
    assert(schemas.length > 100, `${schemas.length} schemas`);
    for (const schema of schemas) {
      assert.match(describeSchema(schema), /^an? \w|^base64 /);
      assert.notEqual(describeSchema({ ...schema, minLength: undefined, maxLength: undefined }), 'a string');
    }
  });
});

/** Collects every string schema below `value` that has a pattern or a format. */
function collect(value: unknown, found: Record<string, unknown>[]): void {
  if (typeof value !== 'object' || value === null) return;
  const schema = value as Record<string, unknown>;
  if (schema.type === 'string' && (schema.pattern !== undefined || schema.format !== undefined)) found.push(schema);
  for (const child of Object.values(value)) collect(child, found);
}

describe('a name that JavaScript uses itself', () => {
  const METADATA = '{"__proto__":{"x":1},"constructor":{"prototype":{"y":2}},"toString":null}';

  it('is a key of metadata like any other', async () => {
    const created = await api('POST', '/v1/machines', { rawBody: `{"metadata":${METADATA}}` });
    assert.equal(created.status, 201, created.text);
    const read = await api('GET', `/v1/machines/${created.json.id}`);
    for (const { json } of [created, read]) {
      // PostgreSQL's jsonb changes the order of keys, so sort them before comparing.
      const inOrder = Object.fromEntries(Object.entries(json.metadata).sort());
      assert.equal(JSON.stringify(inOrder), METADATA);
    }
    assert.equal(Object.hasOwn(Object.prototype, 'x'), false);
    assert.equal(({} as Record<string, unknown>).y, undefined);
  });

  it('counts for the Idempotency-Key', async () => {
    const create = (rawBody: string) =>
      api('POST', '/v1/machines', { rawBody, headers: { 'idempotency-key': 'proto' } });
    assert.equal((await create('{"metadata":{"__proto__":{"x":1}}}')).status, 201);
    assert.equal((await create('{"metadata":{"__proto__":{"x":1}}}')).status, 200);
    assert.equal((await create('{"metadata":{"__proto__":{"x":2}}}')).status, 409);
  });

  it('is a filter of metadata like any other', async () => {
    const { id } = (await api('POST', '/v1/machines', { rawBody: '{"metadata":{"__proto__":"found"}}' })).json;
    const { machines } = (await api('GET', '/v1/machines?metadata.__proto__=found')).json;
    assert.deepEqual(
      machines.map((machine: { id: string }) => machine.id),
      [id],
    );
  });

  it('is a variable of a job like any other', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    const rawBody = '{"command":"env","env":{"__proto__":"a","constructor":"b"}}';
    const started = await api('POST', `/v1/machines/${id}/execs`, { rawBody });
    assert.equal(started.status, 201, started.text);
  });
});
