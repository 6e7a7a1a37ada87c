// Tests the text that an agent reads when a call fails: the code, the reason and what to do next.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { ERROR_TABLE } from '@sandbar/contract/errors.ts';
import { type Connection, connectTo, textOf } from './testing/connect.ts';
import { type FakeService, refused, startFakeService } from './testing/fake-service.ts';
import { MACHINE_ID } from './testing/records.ts';
import { ERROR_META_KEY } from './tool-errors.ts';

let service: FakeService;
let connection: Connection;
before(async () => {
  service = await startFakeService();
  connection = await connectTo(service.baseUrl);
});
after(async () => {
  await connection.close();
  service.close();
});
afterEach(() => service.reset());

const get = (agent = connection.agent) =>
  agent.callTool({ name: 'machine_get', arguments: { machine_id: MACHINE_ID } });

describe('an error of the service', () => {
  for (const [code, { status }] of Object.entries(ERROR_TABLE)) {
    it(`${code} becomes an error result with its code and reason`, async () => {
      service.on('GET /v1/machines/*', () => refused(status, code, 'The reason.', { 'x-request-id': 'r1' }));
      const result = await get();
      assert.equal(result.isError, true);
      assert.ok(textOf(result).startsWith(`Error ${code}: The reason. (request r1)`), textOf(result));
      const meta = result._meta?.[ERROR_META_KEY] as Record<string, unknown>;
      assert.deepEqual([meta.code, meta.status, meta.request_id], [code, status, 'r1']);
    });
  }

  it('says what to do next', async () => {
    service.on('GET /v1/machines/*', () => refused(404, 'not_found', 'There is no such machine.'));
    assert.match(textOf(await get()), /\nWhat to do: Check the id .*machine_list/);
    service.on('GET /v1/machines/*', () => refused(429, 'rate_limited', 'Too many.', { 'retry-after': '7' }));
    assert.match(textOf(await get()), /\nWhat to do: Try again in 7 s\.$/);
  });
});

describe('a service that does not answer', () => {
  it('becomes a connection_error that names its address', async () => {
    const nobody = await connectTo('http://127.0.0.1:1');
    const result = await get(nobody.agent);
    assert.equal(result.isError, true);
    assert.match(textOf(result), /^Error connection_error: the service does not answer at http:\/\/127\.0\.0\.1:1/);
    await nobody.close();
  });
});

describe('bad arguments', () => {
  const cases: [string, string, Record<string, unknown>, RegExp][] = [
    ['a missing argument', 'exec', { machine_id: MACHINE_ID }, /command: .*expected string/],
    ['an unknown argument', 'machine_get', { machine_id: MACHINE_ID, id: 'x' }, /Unrecognized key: "id"/],
    ['a name instead of an id', 'machine_get', { machine_id: 'box' }, /machine_id: must be an id/],
    ['a path instead of an id', 'machine_get', { machine_id: '../account' }, /machine_id: must be an id/],
    ['a relative path', 'file_read', { machine_id: MACHINE_ID, path: 'a' }, /path: must be an absolute path/],
    [
      'a number over the bound',
      'exec',
      { machine_id: MACHINE_ID, command: 'x', timeout_sec: 9999 },
      /timeout_sec: .*3600/,
    ],
    ['a port that is none', 'port_url', { machine_id: MACHINE_ID, port: 70_000 }, /port: .*65535/],
    [
      'a mode that is not octal',
      'file_write',
      { machine_id: MACHINE_ID, path: '/a', content: '', mode: '9' },
      /mode: must be octal/,
    ],
  ];
  for (const [what, name, args, message] of cases) {
    it(`${what} is named in the error, and nothing is sent`, async () => {
      const result = await connection.agent.callTool({ name, arguments: args });
      assert.equal(result.isError, true);
      assert.match(textOf(result), message);
      assert.equal(service.requests.length, 0);
    });
  }

  it('an unknown tool is refused', async () => {
    await assert.rejects(
      connection.agent.callTool({ name: 'machine_paint', arguments: {} }),
      /machine_paint not found/,
    );
  });
});
