// Tests the API of files against a guest that the test plays: what the guest is asked, what clients get, and that a
// guest with answers of any shape harms nobody.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { encodePath } from '@sandbar/contract/file-path.ts';
import fc from 'fast-check';
import { guestEntry } from './support/guest-files.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, keys } = bed;
const machine: string = (await api('POST', '/v1/machines')).json.id;
const files = `/v1/machines/${machine}/files`;
/** What the guest was asked, in order. */
const asked: [string, Record<string, unknown>][] = [];

function answer(
  name: 'files.entry' | 'files.list' | 'files.remove' | 'files.mkdir' | 'files.move',
  act: unknown,
): void {
  host.guestCalls[name] = (_machineId: string, params: Record<string, unknown>) => {
    asked.push([name, params]);
    if (act instanceof Error) throw act;
    return typeof act === 'function' ? act(params) : act;
  };
}
const last = () => asked.at(-1);

describe('an entry', () => {
  it('has the fields of the guest in the form of the API', async () => {
    answer('files.entry', guestEntry({ mode: 0o4755, user: '', group: '', uid: 1000, gid: 1001 }));
    const { status, json } = await api('GET', `${files}/entry?path=/root/hello.txt`);
    assert.equal(status, 200);
    assert.deepEqual(json, {
      path: '/root/hello.txt',
      name: 'hello.txt',
      type: 'file',
      size: 6,
      mode: '4755',
      user: '1000',
      group: '1001',
      modified_at: '2026-01-02T03:05:00.123Z',
    });
    assert.deepEqual(last(), ['files.entry', { path: '/root/hello.txt' }]);
  });

  it('of a symlink has its target, and that of the root its name', async () => {
    answer('files.entry', guestEntry({ path: '/', type: 'symlink', target: '..%2F%FF' }));
    const { json } = await api('GET', `${files}/entry?path=/`);
    assert.deepEqual([json.name, json.target, json.path_encoded], ['/', '../\ufffd', undefined]);
  });

  it('of a name that is no UTF-8 is reached by its bytes and also has them encoded', async () => {
    answer('files.entry', ({ path }: { path: string }) => guestEntry({ path }));
    const { json } = await api('GET', `${files}/entry?path=/a%ff%0a+b`);
    assert.deepEqual(last(), ['files.entry', { path: '/a%FF%0A%20b' }]);
    assert.deepEqual([json.path, json.path_encoded], ['/a\ufffd\n b', '/a%FF%0A%20b']);
    const again = await api('GET', `${files}/entry?path=${json.path_encoded}`);
    assert.deepEqual(again.json, json);
  });

  it('of any path within the limits reaches the guest byte for byte', async () => {
    const name = fc.uint8Array({ minLength: 1, maxLength: 40 }).map((bytes) => bytes.filter((byte) => byte !== 0));
    await fc.assert(
      fc.asyncProperty(fc.array(name, { minLength: 1, maxLength: 5 }), async (names) => {
        const path = encodePath(Buffer.concat(names.flatMap((bytes) => [Buffer.from('/'), bytes])));
        const { status } = await api('GET', `${files}/entry?path=${path}`);
        assert.deepEqual([status, last()], [200, ['files.entry', { path }]]);
      }),
      { numRuns: 50 },
    );
  });

  for (const [what, query] of [
    ['no path', ''],
    ['two paths', 'path=/a&path=/b'],
    ['an empty path', 'path='],
    ['a relative path', 'path=etc'],
    ['a NUL byte', 'path=/a%00'],
    ['a name of 256 bytes', `path=/${'n'.repeat(256)}`],
    ['a path of 4,097 bytes', `path=${'/n'.repeat(2048)}/`],
    ['an escape that is none', 'path=/%zz'],
    ['another parameter', 'path=/a&depth=1'],
  ]) {
    it(`is 400 for ${what}, and the guest is not asked`, async () => {
      const before = asked.length;
      const { status, json } = await api('GET', `${files}/entry?${query}`);
      assert.deepEqual([status, json.code], [400, 'validation_error'], JSON.stringify(json));
      assert.equal(asked.length, before);
    });
  }
});

describe('a list', () => {
  it('asks for pages until the guest has no more', async () => {
    const names = ['/d/a', '/d/b%FF', '/d/c'];
    answer('files.list', ({ after, limit }: { after?: string; limit: number }) => {
      const from = after === undefined ? 0 : names.indexOf(after) + 1;
      const page = names.slice(from, from + limit);
      return { entries: page.map((path) => guestEntry({ path })), more: from + limit < names.length };
    });
    const seen: string[] = [];
    let cursor = '';
    do {
      const { json } = await api('GET', `${files}?path=/d&depth=3&page_size=1${cursor && `&cursor=${cursor}`}`);
      assert.deepEqual(last()?.[1].depth, 3);
      seen.push(json.entries[0].path);
      cursor = json.next_cursor;
    } while (cursor !== '');
    assert.deepEqual(seen, ['/d/a', '/d/b\ufffd', '/d/c']);
    assert.deepEqual(last(), ['files.list', { path: '/d', depth: 3, limit: 1, after: '/d/b%FF' }]);
  });

  it('has one level and up to 1,000 entries when nothing else is asked for', async () => {
    answer('files.list', { entries: [], more: false });
    assert.deepEqual((await api('GET', `${files}?path=/d`)).json, { entries: [], next_cursor: '' });
    assert.deepEqual(last(), ['files.list', { path: '/d', depth: 1, limit: 1000 }]);
  });

  it('refuses a cursor that it did not give', async () => {
    answer('files.list', new ServiceError('validation_error', 'after is not below path'));
    for (const cursor of ['%', 'a b', Buffer.from('/elsewhere').toString('base64url')]) {
      const { status, json } = await api('GET', `${files}?path=/d&cursor=${encodeURIComponent(cursor)}`);
      assert.deepEqual([status, json.code], [400, 'validation_error']);
      assert.match(json.detail, /^cursor must be the next_cursor/);
    }
  });

  it('is 400 for a depth or a page out of range', async () => {
    for (const query of ['depth=0', 'depth=65', 'page_size=0', 'page_size=1001', 'depth=x']) {
      assert.equal((await api('GET', `${files}?path=/d&${query}`)).status, 400, query);
    }
  });
});

describe('a change', () => {
  it('of a directory is 201 when it was made and 200 when it was there', async () => {
    const directory = guestEntry({ path: '/d', type: 'directory', mode: 0o700 });
    for (const created of [true, false]) {
      answer('files.mkdir', { entry: directory, created });
      const { status, json } = await api('POST', `${files}/directory`, {
        body: { path: '/d', mode: '0700', user: 'me' },
      });
      assert.deepEqual([status, json.type], [created ? 201 : 200, 'directory']);
      assert.deepEqual(last(), ['files.mkdir', { path: '/d', mode: 0o700, user: 'me', parents: true }]);
    }
    await api('POST', `${files}/directory`, { body: { path_encoded: '/d%FF' } });
    assert.deepEqual(last(), ['files.mkdir', { path: '/d%FF', mode: 0o755, user: null, parents: true }]);
  });

  it('moves with paths as text or encoded', async () => {
    answer('files.move', guestEntry({ path: '/b' }));
    assert.equal((await api('POST', `${files}/move`, { body: { from: '/ü', to_encoded: '/%FF' } })).status, 200);
    assert.deepEqual(last(), ['files.move', { from: '/%C3%BC', to: '/%FF', overwrite: false }]);
    await api('POST', `${files}/move`, { body: { from: '/a', to: '/b', overwrite: true } });
    assert.deepEqual(last(), ['files.move', { from: '/a', to: '/b', overwrite: true }]);
  });

  it('deletes one file, or with recursive a tree', async () => {
    answer('files.remove', {});
    assert.equal((await api('DELETE', `${files}?path=/a`)).status, 204);
    assert.deepEqual(last(), ['files.remove', { path: '/a', recursive: false }]);
    assert.equal((await api('DELETE', `${files}?path=/a&recursive=true`)).status, 204);
    assert.deepEqual(last(), ['files.remove', { path: '/a', recursive: true }]);
  });

  for (const body of [
    {},
    { path: 'a' },
    { path: '/a', path_encoded: '/a' },
    { path_encoded: '/%0' },
    { path_encoded: '/%00' },
    { path: `/${'ü'.repeat(128)}` },
    { path: '/a', mode: '0999' },
    { path: '/a', mode: 644 },
    { path: '/a', user: '' },
    { path: '/a', parents: false },
  ]) {
    it(`is 400 for ${JSON.stringify(body).slice(0, 60)}`, async () => {
      const { status, json } = await api('POST', `${files}/directory`, { body });
      assert.deepEqual([status, json.code], [400, 'validation_error']);
    });
  }

  it('needs both paths to move', async () => {
    for (const body of [
      { from: '/a' },
      { to: '/a' },
      { from: '/a', to: '/b', to_encoded: '/b' },
      { from: 'a', to: '/b' },
    ]) {
      assert.equal((await api('POST', `${files}/move`, { body })).status, 400);
    }
  });
});

describe('a refusal of the guest', () => {
  it('reaches the client with its code and its text', async () => {
    for (const [code, status] of [
      ['not_found', 404],
      ['conflict', 409],
      ['disk_full', 507],
      ['validation_error', 400],
    ] as const) {
      answer('files.mkdir', new ServiceError(code, 'something about /a'));
      const { status: told, json } = await api('POST', `${files}/directory`, { body: { path: '/a' } });
      assert.deepEqual([told, json], [status, { code, detail: 'something about /a' }]);
    }
  });
});

describe('a machine', () => {
  it('that is stopped has no files to reach: 409', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    await api('POST', `/v1/machines/${id}/stop`);
    for (const [method, path] of [
      ['GET', 'files?path=/'],
      ['GET', 'files/content?path=/a'],
      ['PUT', 'files/content?path=/a'],
      ['GET', 'files/archive?path=/'],
      ['PUT', 'files/archive?path=/'],
      ['GET', 'files/watch?path=/'],
      ['DELETE', 'files?path=/a'],
    ] as const) {
      const { status, json } = await api(method, `/v1/machines/${id}/${path}`);
      assert.deepEqual([status, json.code], [409, 'conflict'], `${method} ${path}`);
    }
  });
});

describe('a hostile guest', () => {
  const any = fc.anything({ withNullPrototype: false, maxDepth: 3 }).filter((value) => value !== undefined);

  it('may answer anything as JSON: the client gets 200 in the right shape, or an error, and the service goes on', async () => {
    await fc.assert(
      fc.asyncProperty(any, async (value) => {
        answer('files.entry', value);
        answer('files.list', value);
        answer('files.mkdir', value);
        const answers = [
          await api('GET', `${files}/entry?path=/a`),
          await api('GET', `${files}?path=/a`),
          await api('POST', `${files}/directory`, { body: { path: '/a' } }),
        ];
        for (const { status } of answers) assert([500, 503].includes(status), String(status));
      }),
      { numRuns: 40 },
    );
  });

  it('may change any field of an entry: what is out of its bounds is refused', async () => {
    const bad: Record<string, unknown>[] = [
      { path: 'relative' },
      { path: '/%00' },
      { path: '/%f' },
      { path: '/'.repeat(70_000) },
      { path: undefined },
      { type: 'door' },
      { size: -1 },
      { size: 1.5 },
      { size: 2 ** 53 },
      { size: '6' },
      { mode: 0o10000 },
      { uid: -1 },
      { gid: 2 ** 32 },
      { user: 'u'.repeat(1000) },
      { mtime_ns: 'yesterday' },
      { mtime_ns: '1'.repeat(20) },
      { mtime_ns: 5 },
      { target: '%' },
      { target: 'x'.repeat(20_000) },
    ];
    for (const changes of bad) {
      answer('files.entry', { ...guestEntry(), ...changes });
      const { status, json } = await api('GET', `${files}/entry?path=/a`);
      assert.deepEqual([status, json.code], [500, 'internal_error'], JSON.stringify(changes).slice(0, 80));
      assert.doesNotMatch(json.detail, /relative|door|yesterday/);
    }
  });

  it('may add fields: clients do not get them', async () => {
    answer('files.entry', { ...guestEntry(), host: 'secret', __proto__: { x: 1 } });
    const { json } = await api('GET', `${files}/entry?path=/a`);
    assert.equal('host' in json, false);
  });

  it('may give pages that never end: they are refused', async () => {
    const entry = guestEntry({ path: '/d/a' });
    const after = Buffer.from('/d/a').toString('base64url');
    answer('files.list', { entries: [], more: true });
    assert.equal((await api('GET', `${files}?path=/d`)).status, 500, 'no entry but more');
    answer('files.list', { entries: [entry], more: true });
    assert.equal((await api('GET', `${files}?path=/d&cursor=${after}`)).status, 500, 'the same page again');
    answer('files.list', { entries: [entry, entry], more: false });
    assert.equal((await api('GET', `${files}?path=/d&page_size=1`)).status, 500, 'more than asked for');
  });

  it('may refuse with the code of another part of the service: the client does not get it', async () => {
    for (const code of ['unauthenticated', 'quota_exceeded', 'rate_limited', 'insufficient_balance'] as const) {
      answer('files.entry', new ServiceError(code, 'from the guest'));
      const { status, json } = await api('GET', `${files}/entry?path=/a`);
      assert.deepEqual([status, json.code], [500, 'internal_error']);
      assert.doesNotMatch(json.detail, /from the guest/);
    }
  });
});

describe('a read key', () => {
  it('reads and changes nothing', async () => {
    answer('files.entry', guestEntry());
    assert.equal((await api('GET', `${files}/entry?path=/a`, { key: keys.read })).status, 200);
    const { status, json } = await api('DELETE', `${files}?path=/a`, { key: keys.read });
    assert.deepEqual([status, json.code], [403, 'forbidden']);
  });
});
