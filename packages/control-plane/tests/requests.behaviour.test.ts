// Tests that every bad request gets the right status, the right code and a sentence that names the mistake.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import { type CallOptions, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, keys } = bed;
const machine: string = (await api('POST', '/v1/machines')).json.id;
const exec: string = (await api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } })).json.id;
const execs = `/v1/machines/${machine}/execs`;

type Case = [
  name: string,
  method: string,
  path: string,
  options: CallOptions,
  status: number,
  code: string,
  detail: RegExp,
];
const badCreate = (name: string, body: unknown, detail: RegExp): Case => [
  `create: ${name}`,
  'POST',
  '/v1/machines',
  { body },
  400,
  'validation_error',
  detail,
];
const badExec = (name: string, body: unknown, detail: RegExp): Case => [
  `exec: ${name}`,
  'POST',
  execs,
  { body },
  400,
  'validation_error',
  detail,
];
const badQuery = (path: string, detail: RegExp): Case => [
  `query: ${path.slice(-60)}`,
  'GET',
  path,
  {},
  400,
  'validation_error',
  detail,
];
const raw = (rawBody: string, headers: Record<string, string> = {}): CallOptions => ({ rawBody, headers });
const NO_UUID = /^id must be a UUID, such as 019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65\.$/;
const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`;

const CASES: Case[] = [
  badCreate('name is a number', { name: 5 }, /name must be a string of at most 255 characters/),
  badCreate('name is null', { name: null }, /name/),
  badCreate('name too long', { name: 'x'.repeat(256) }, /name .*255/),
  badCreate('vcpus zero', { vcpus: 0 }, /vcpus must be an integer from 1/),
  badCreate('vcpus a string', { vcpus: '2' }, /vcpus must be an integer/),
  badCreate('vcpus a fraction', { vcpus: 1.5 }, /vcpus/),
  badCreate('vcpus absurd', { vcpus: 100_000 }, /vcpus/),
  badCreate('memory too small', { memory_mb: 127 }, /memory_mb must be an integer from 128/),
  badCreate('memory beyond any integer', { memory_mb: 2 ** 40 }, /memory_mb/),
  badCreate('memory true', { memory_mb: true }, /memory_mb/),
  badCreate('rootfs too large', { rootfs_size_gb: 1025 }, /rootfs_size_gb must be an integer from 1 to 1024/),
  badCreate(
    'rootfs below the image',
    { rootfs_size_gb: 1 },
    /rootfs_size_gb must be at least 2, the size of the image "base"/,
  ),
  badCreate('unknown stack', { stack: 'windows' }, /stack .*base/),
  badCreate('empty stack', { stack: '' }, /stack/),
  badCreate('metadata a list', { metadata: [] }, /metadata must be an object/),
  badCreate(
    'metadata with 65 keys',
    { metadata: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [i, i])) },
    /metadata .*64/,
  ),
  badCreate('metadata over 16 KiB', { metadata: { a: 'ü'.repeat(8193) } }, /metadata must be at most 16384 bytes/),
  badCreate('metadata nested 5000 deep', undefined, /nested/),
  badCreate('NUL in a value', { metadata: { a: 'x\0y' } }, /metadata must hold no NUL/),
  badCreate('NUL in a key', { metadata: { 'a\0': 1 } }, /NUL/),
  badCreate('NUL in the name', { name: '\0' }, /name must hold no NUL/),
  badCreate('unknown field', { cpus: 1 }, /Unknown field "cpus"; allowed are name, vcpus/),
  badCreate(
    'snapshot_id with root_volume_id',
    { snapshot_id: randomUUID(), root_volume_id: randomUUID() },
    /^snapshot_id and root_volume_id exclude each other/,
  ),
  badCreate('body a list', [], /The body must be an object/),
  badCreate('body a string', 'x', /The body must be an object/),
  badCreate('body null', null, /The body must be an object|Unknown|body/),
  [
    'create: half a surrogate',
    'POST',
    '/v1/machines',
    raw('{"name":"\\ud800"}'),
    400,
    'validation_error',
    /name .*Unicode/,
  ],
  ['create: no JSON', 'POST', '/v1/machines', raw('{"name":'), 400, 'validation_error', /valid JSON/],
  [
    'create: __proto__',
    'POST',
    '/v1/machines',
    raw('{"__proto__":{"x":1}}'),
    400,
    'validation_error',
    /^Unknown field "__proto__"; allowed are name, /,
  ],
  [
    'create: constructor',
    'POST',
    '/v1/machines',
    raw('{"constructor":{"prototype":1}}'),
    400,
    'validation_error',
    /^Unknown field "constructor"; allowed are name, /,
  ],
  ['query: __proto__', 'GET', '/v1/machines?__proto__=1', {}, 400, 'validation_error', /"__proto__"/],
  [
    'create: 1 MiB and more',
    'POST',
    '/v1/machines',
    raw(JSON.stringify({ name: 'x'.repeat(1_048_576) })),
    413,
    'payload_too_large',
    /1 MiB/,
  ],
  [
    'create: text',
    'POST',
    '/v1/machines',
    raw('{}', { 'content-type': 'text/plain' }),
    415,
    'unsupported_media_type',
    /application\/json/,
  ],
  [
    'create: a form',
    'POST',
    '/v1/machines',
    raw('a=b', { 'content-type': 'application/x-www-form-urlencoded' }),
    415,
    'unsupported_media_type',
    /json/,
  ],
  ['create: unknown query', 'POST', '/v1/machines?x=1', {}, 400, 'validation_error', /Unknown query parameter "x"/],
  badExec('nothing', {}, /Exactly one of command and argv/),
  badExec('both', { command: 'a', argv: ['a'] }, /Exactly one/),
  badExec('command empty', { command: '' }, /command must be a string of at least 1 characters/),
  badExec('command a list', { command: ['ls'] }, /command/),
  badExec('argv empty', { argv: [] }, /argv must be an array/),
  badExec('argv of numbers', { argv: [1] }, /argv\.0 must be a string/),
  badExec('argv with NUL', { argv: ['a\0b'] }, /argv must hold no NUL/),
  badExec('exec_id no UUID', { command: 'a', exec_id: 'x' }, /exec_id must be a UUID, such as 019b/),
  badExec('exec_id with a prefix', { command: 'a', exec_id: `urn:uuid:${randomUUID()}` }, /exec_id/),
  badExec('env a list', { command: 'a', env: ['A=1'] }, /env must be an object/),
  badExec('env value a number', { command: 'a', env: { A: 1 } }, /^env\.A must be a string without NUL characters\.$/),
  badExec('env name with =', { command: 'a', env: { 'A=B': 'x' } }, /env/),
  badExec('env name empty', { command: 'a', env: { '': 'x' } }, /env/),
  badExec('cwd empty', { command: 'a', cwd: '' }, /cwd/),
  badExec('cwd relative', { command: 'a', cwd: 'tmp' }, /cwd must be an absolute path/),
  badExec('user too long', { command: 'a', user: 'x'.repeat(65) }, /user/),
  badExec('stdin no base64', { command: 'a', stdin: '%%%' }, /stdin must be base64/),
  badExec('stdin without padding', { command: 'a', stdin: 'YQ' }, /stdin must be base64/),
  badExec('stdin with a line break', { command: 'a', stdin: 'YWFh\nYWFh' }, /stdin must be base64/),
  badExec(
    'stdin too large',
    { command: 'a', stdin: Buffer.alloc(524_289).toString('base64') },
    /stdin must be at most 524288/,
  ),
  badExec('timeout zero', { command: 'a', timeout_sec: 0 }, /timeout_sec must be an integer from 1 to 86400/),
  badExec('timeout over a day', { command: 'a', timeout_sec: 86_401 }, /timeout_sec/),
  badExec('unknown field', { command: 'a', shell: true }, /"shell"/),
  badQuery('/v1/machines?state=gone', /state must be one of pending, provisioning/),
  badQuery('/v1/machines?page_size=0', /page_size must be an integer from 1 to 200/),
  badQuery('/v1/machines?page_size=201', /page_size/),
  badQuery('/v1/machines?page_size=x', /page_size/),
  badQuery('/v1/machines?page_size=', /page_size/),
  badQuery('/v1/machines?page_size=0x10', /page_size/),
  badQuery('/v1/machines?page_size=1&page_size=2', /page_size/),
  badQuery('/v1/machines?cursor=nonsense', /cursor/),
  badQuery(`/v1/machines?cursor=${Buffer.from('1.x.y').toString('base64url')}`, /cursor/),
  badQuery('/v1/machines?limit=5', /Unknown query parameter "limit"; allowed are state, name, page_size, cursor/),
  badQuery('/v1/machines?metadata.=x', /metadata/),
  badQuery('/v1/machines?metadata.a=1&metadata.a=2', /metadata\.a must be a string/),
  badQuery('/v1/machines?name=%00', /name must hold no NUL/),
  badQuery(`/v1/machines/${machine}?verbose=1`, /"verbose"; none is allowed here/),
  badQuery('/v1/images?x=1', /"x"/),
  badQuery(`${execs}?status=done`, /status must be one of running/),
  badQuery(`${execs}/${exec}?wait_ms=60001`, /wait_ms must be an integer from 0 to 60000/),
  badQuery(`${execs}/${exec}?wait_ms=-1`, /wait_ms/),
  badQuery(`${execs}/${exec}/output?stream=both`, /stream must be one of stdout, stderr/),
  badQuery(`${execs}/${exec}/output?offset=-1`, /offset/),
  badQuery(`${execs}/${exec}/output?offset=99999999999999999999`, /offset/),
  badQuery(`${execs}/${exec}/output?limit=1048577`, /limit must be an integer from 1 to 1048576/),
  badQuery(`${execs}/${exec}/output?limit=0`, /limit/),
  [
    'stop: a body',
    'POST',
    `/v1/machines/${machine}/stop`,
    { body: { force: true } },
    400,
    'validation_error',
    /no body/,
  ],
  [
    'delete: preserve_storage maybe',
    'DELETE',
    `/v1/machines/${machine}?preserve_storage=maybe`,
    {},
    400,
    'validation_error',
    /preserve_storage must be true or false/,
  ],
  ['get: no UUID', 'GET', '/v1/machines/abc', {}, 404, 'not_found', NO_UUID],
  ['get: the exec is no UUID', 'GET', `${execs}/abc`, {}, 404, 'not_found', /^exec_id must be a UUID/],
  ['delete: no UUID', 'DELETE', '/v1/volumes/abc', {}, 404, 'not_found', NO_UUID],
  [
    'create: a key that is not printable',
    'POST',
    '/v1/machines',
    { body: {}, headers: { 'idempotency-key': 'ä' } },
    400,
    'validation_error',
    /^idempotency-key must be a text of 1 to 255 printable ASCII characters\.$/,
  ],
  badQuery('/v1/activity?from=yesterday', /^from must be a date and time as in RFC 3339, such as 2026-/),
  [
    'sign-in: no address',
    'POST',
    '/v1/auth/sign-in',
    { key: null, body: { email: 'ada', password: 'x' } },
    400,
    'validation_error',
    /^email must be an email address of 3 to 254 characters such as name@example\.com\.$/,
  ],
  ['get: a very long id', 'GET', `/v1/machines/${'x'.repeat(900)}`, {}, 404, 'not_found', NO_UUID],
  ['get: a broken escape', 'GET', '/v1/machines/%zz', {}, 404, 'not_found', /./],
  ['exec: machine no UUID', 'POST', '/v1/machines/x/execs', { body: { command: 'a' } }, 404, 'not_found', /./],
  ['unknown path', 'GET', '/v2/machines', {}, 404, 'not_found', /./],
  ['unknown path without a credential', 'GET', '/nothing', { key: null }, 404, 'not_found', /./],
  ['trailing slash', 'GET', '/v1/machines/', {}, 404, 'not_found', /./],
];

describe('a bad request', () => {
  for (const [name, method, path, options, status, code, detail] of CASES) {
    it(`${name} is ${status} ${code}`, async () => {
      const answer = await api(method, path, name.includes('5000 deep') ? raw(`{"metadata":{"a":${deep}}}`) : options);
      assert.deepEqual([answer.status, answer.json?.code], [status, code], answer.text);
      assert.match(answer.json.detail, detail);
    });
  }

  it('leaves nothing behind', async () => {
    assert.equal((await api('GET', '/v1/machines')).json.machines.length, 1);
  });

  it('another method is 405 with Allow, before credentials and bodies', async () => {
    const answer = await api('PUT', '/v1/machines', { key: null, rawBody: 'x', headers: { 'content-type': 'text/x' } });
    assert.deepEqual(
      [answer.status, answer.json.code, answer.headers.get('allow')],
      [405, 'method_not_allowed', 'GET, HEAD, POST'],
    );
    const item = await api('POST', `/v1/machines/${machine}`);
    assert.deepEqual([item.status, item.headers.get('allow')], [405, 'DELETE, GET, HEAD, PATCH']);
    assert.equal((await api('GET', `/v1/machines/${machine}/stop`)).headers.get('allow'), 'POST');
    for (const method of ['QUERY', 'PROPFIND', 'TRACE', 'OPTIONS']) {
      assert.equal(await statusOf(method, '/v1/machines'), 405, method);
      assert.equal(await statusOf(method, '/nothing'), 404, method);
    }
  });

  it('the retired exec is 410 with a pointer, whatever the body', async () => {
    for (const options of [{}, { body: { cmd: 'ls' } }, raw('not json'), raw('x', { 'content-type': 'text/plain' })]) {
      const answer = await api('POST', `/v1/machines/${machine}/exec`, options);
      assert.deepEqual([answer.status, answer.json.code], [410, 'endpoint_retired']);
      assert.equal(answer.headers.get('link'), `<${execs}>; rel="successor-version"`);
      assert.match(answer.json.detail, /\/execs/);
    }
    assert.equal((await api('POST', `/v1/machines/${machine}/exec`, { key: null })).status, 401);
    assert.equal((await api('POST', `/v1/machines/${machine}/exec`, { key: keys.read })).status, 403);
  });

  it('bytes that are no HTTP get an error in our shape', async () => {
    const { host, port } = bed.plane.address;
    const text = await new Promise<string>((resolve) => {
      let received = '';
      const socket = connect(port, host, () => socket.write('NONSENSE\r\n\r\n'));
      socket.on('data', (data) => {
        received += data;
      });
      socket.on('close', () => resolve(received));
    });
    assert.match(text, /^HTTP\/1\.1 400 /);
    assert.match(text, /"code":"validation_error"/);
    assert.match(text, /x-request-id/);
  });
});

describe('a request line that is too long', () => {
  it('is 431 in our shape', async () => {
    const answer = await api('GET', `/v1/machines?name=${'x'.repeat(20_000)}`);
    assert.deepEqual([answer.status, answer.json.code], [431, 'validation_error']);
    assert.match(answer.json.detail, /at most 16 KiB/);
  });
});

describe('an odd request that the document allows', () => {
  it('a page_size beyond any integer is clamped', async () => {
    assert.equal((await api('GET', `/v1/activity?page_size=${'9'.repeat(30)}`)).status, 200);
  });

  it('a key of a metadata filter may hold a line break', async () => {
    assert.equal((await api('GET', '/v1/machines?metadata.a%0Ab=x')).status, 200);
  });
});

describe('the request id', () => {
  it('is the client’s when it is a sane token, else ours', async () => {
    const id = async (given: string) =>
      (await api('GET', '/v1/machines', { headers: { 'x-request-id': given } })).headers.get('x-request-id');
    assert.equal(await id('abc-1.2_3'), 'abc-1.2_3');
    assert.notEqual(await id('a b'), 'a b');
    assert.notEqual(await id('x'.repeat(129)), 'x'.repeat(129));
  });
});

/** Returns the status of a request with a method that `fetch` refuses to send. */
function statusOf(method: string, path: string): Promise<number | undefined> {
  const { host, port } = bed.plane.address;
  return new Promise((resolve, reject) => {
    request({ host, port, method, path }, (response) => resolve(response.resume().statusCode))
      .once('error', reject)
      .end();
  });
}

describe('public pages', () => {
  it('the document and the reference need no credential and nothing from outside', async () => {
    const served = await api('GET', '/openapi.json', { key: null });
    assert.equal(served.json.openapi, '3.1.0');
    const root = await api('GET', '/', { key: null });
    assert.deepEqual([root.status, root.headers.get('location')], [302, '/docs']);
    const page = await api('GET', '/docs', { key: null });
    assert.equal(page.status, 200);
    const assets = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1] ?? '');
    assert(assets.length > 3);
    for (const asset of assets) {
      assert(!/^https?:|^\/\//.test(asset), asset);
      const path = new URL(asset, 'http://x/docs').pathname;
      assert.equal((await api('GET', path, { key: null })).status, 200, path);
    }
  });
});
