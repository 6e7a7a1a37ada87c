// Tests how the control plane serves a built dashboard: which paths have it, with which headers, and what stays JSON.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { DASHBOARD_PAGES } from '@sandbar/contract/dashboard.ts';
import { startTestBed } from './support/test-bed.ts';

const root = mkdtempSync(path.join(tmpdir(), 'sandbar-pages-'));
after(() => rmSync(root, { recursive: true }));
const PAGE = '<!doctype html><title>Sandbar</title>';
const SCRIPT = 'export const text = "hello";\n'.repeat(100);
mkdirSync(path.join(root, 'dist/assets'), { recursive: true });
writeFileSync(path.join(root, 'outside.js'), 'a secret');
for (const [name, text] of [
  ['index.html', PAGE],
  ['assets/index-a1_B2-c3.js', SCRIPT],
  ['secret.js', 'a secret'],
]) {
  const file = path.join(root, 'dist', String(name));
  writeFileSync(file, String(text));
  writeFileSync(`${file}.br`, brotliCompressSync(String(text)));
  writeFileSync(`${file}.gz`, gzipSync(String(text)));
}
const ASSET = '/assets/index-a1_B2-c3.js';
const BROWSER = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8', 'accept-encoding': 'identity' };

const bed = await startTestBed({ config: { dashboardDir: path.join(root, 'dist') } });

type Raw = { status: number; headers: Record<string, string | string[] | undefined>; body: Buffer };

/** Sends a path as it stands, which `fetch` would tidy, and does not decompress the answer. */
function send(target: string, headers: Record<string, string> = BROWSER, method = 'GET'): Promise<Raw> {
  const { host, port } = bed.plane.address;
  const { promise, resolve, reject } = Promise.withResolvers<Raw>();
  const sent = request({ host, port, path: target, method, headers }, async (response) => {
    const body = Buffer.concat(await response.toArray());
    resolve({ status: response.statusCode ?? 0, headers: response.headers, body });
  });
  sent.on('error', reject);
  sent.end();
  return promise;
}

const assertNotFound = ({ status, headers, body }: Raw, what: string) => {
  assert.equal(status, 404, what);
  assert.match(String(headers['content-type']), /^application\/json/, what);
  assert.equal(JSON.parse(body.toString()).code, 'not_found', what);
};

describe('the pages of the dashboard', () => {
  it('have the same document at every address, which browsers ask for again each time', async () => {
    const addresses = ['/', ...DASHBOARD_PAGES.flatMap((page) => [`/${page}`, `/${page}?q=%00`, `/${page}/x/y/z`])];
    for (const address of addresses) {
      const { status, headers, body } = await send(address);
      assert.equal(status, 200, address);
      assert.equal(body.toString(), PAGE, address);
      assert.equal(headers['content-type'], 'text/html; charset=utf-8', address);
      assert.equal(headers['cache-control'], 'no-cache', address);
    }
    const { headers } = await send('/machines');
    const again = await send('/machines', { ...BROWSER, 'if-none-match': String(headers.etag) });
    assert.deepEqual([again.status, again.body.length], [304, 0]);
  });

  it('may load only files of their own origin, and be shown in no frame', async () => {
    for (const address of ['/', '/machines/x', ASSET, '/nope']) {
      const { headers } = await send(address);
      const policy = new Map(
        String(headers['content-security-policy'])
          .split('; ')
          .map((rule) => [rule.split(' ')[0], rule.split(' ').slice(1).join(' ')]),
      );
      assert.equal(policy.get('default-src'), "'none'", address);
      assert.equal(policy.get('frame-ancestors'), "'none'", address);
      assert.equal(policy.get('base-uri'), "'none'", address);
      for (const kind of ['script-src', 'style-src', 'img-src', 'font-src', 'connect-src', 'form-action']) {
        assert.equal(policy.get(kind), "'self'", `${kind} of ${address}`);
      }
      assert.equal(headers['x-content-type-options'], 'nosniff', address);
      assert.equal(headers['referrer-policy'], 'no-referrer', address);
      assert.equal(headers['cross-origin-opener-policy'], 'same-origin', address);
    }
  });

  it('answer HEAD with the headers of GET and no body, and nothing to other methods', async () => {
    for (const address of ['/', '/machines', ASSET]) {
      const got = await send(address);
      const head = await send(address, BROWSER, 'HEAD');
      assert.deepEqual([head.status, head.body.length], [200, 0], address);
      for (const name of ['content-length', 'content-type', 'cache-control', 'content-security-policy', 'etag']) {
        assert.equal(head.headers[name], got.headers[name], `${name} of ${address}`);
      }
      assertNotFound(await send(address, BROWSER, 'POST'), address);
    }
  });

  it('and files are sent whole, whatever part or version a request asks for', async () => {
    const asked = [
      { range: 'bytes=9999999-' },
      { range: 'bytes=0-3' },
      { 'if-match': '"x"' },
      { 'if-unmodified-since': 'Thu, 01 Jan 1970 00:00:00 GMT' },
    ];
    for (const headers of asked) {
      for (const encoding of ['identity', 'br']) {
        for (const [address, length] of [
          ['/', PAGE.length],
          ['/machines', PAGE.length],
          [ASSET, SCRIPT.length],
        ] as const) {
          const answer = await send(address, { ...BROWSER, 'accept-encoding': encoding, ...headers });
          const what = `${address} ${encoding} ${JSON.stringify(headers)}`;
          assert.equal(answer.status, 200, what);
          const body = encoding === 'br' ? brotliDecompressSync(answer.body) : answer.body;
          assert.equal(body.length, length, what);
          assert.equal(answer.headers['content-range'], undefined, what);
        }
        const missing = await send('/nope', { ...BROWSER, 'accept-encoding': encoding, ...headers });
        assert.equal(missing.status, 404, JSON.stringify(headers));
      }
    }
  });

  it('that do not exist say so to people in the dashboard, and to programs in JSON', async () => {
    const { status, headers, body } = await send('/nope/deeper?x=1');
    assert.equal(status, 404);
    assert.equal(body.toString(), PAGE);
    assert.equal(headers['cache-control'], 'no-cache');
    for (const accept of ['*/*', 'application/json']) {
      assertNotFound(await send('/nope', { accept }), accept);
    }
    assertNotFound(await send('/favicon.ico', { accept: 'image/avif,image/webp,*/*;q=0.8' }), 'an icon');
  });

  it('that do not exist are sent whole each time, and a cache keeps them apart from the JSON', async () => {
    const kept = { 'if-none-match': '*', 'if-modified-since': new Date(Date.now() + 60_000).toUTCString() };
    for (const extra of [{}, kept, { range: 'bytes=0-3' }]) {
      const { status, headers, body } = await send('/nope', { ...BROWSER, ...extra });
      assert.deepEqual([status, body.toString()], [404, PAGE], JSON.stringify(extra));
      for (const name of ['etag', 'last-modified', 'content-range', 'accept-ranges']) {
        assert.equal(headers[name], undefined, name);
      }
      assert.equal(headers.vary, 'accept, accept-encoding');
    }
    assert.equal((await send('/nope', { accept: '*/*' })).headers.vary, 'accept');
  });

  it('and files are sent whole to requests for a part of them or for an older version', async () => {
    const requests = [
      { range: 'bytes=9999999-' },
      { range: 'bytes=0-3' },
      { 'if-match': '"x"' },
      { 'if-unmodified-since': 'Sat, 01 Jan 2000 00:00:00 GMT' },
    ];
    for (const [address, text] of [
      ['/', PAGE],
      ['/machines', PAGE],
      [ASSET, SCRIPT],
    ] as const) {
      for (const extra of requests) {
        const { status, body } = await send(address, { ...BROWSER, ...extra });
        assert.deepEqual([status, body.toString()], [200, text], `${address} ${JSON.stringify(extra)}`);
      }
    }
  });

  it('never replace an answer of the API', async () => {
    const { host, port } = bed.plane.address;
    for (const address of [
      ...['/v1', '/v1/nope', '/v1/machines/x/y', '/v1/machinesx', '/docs/nope', '/assets', '/v1?q'],
      ...['/admin', '/admin/v1/nope', '/admin/accounts', '/openapi.json/x', '/openapi-admin.json'],
      ...['//v1/x', '/v1%2fx', '/%76%31/x', `http://${host}:${port}/v1/x`],
    ]) {
      assertNotFound(await send(address), address);
    }
    const { status, headers } = await send('/v1/machines');
    assert.equal(status, 401);
    assert.match(String(headers['content-type']), /^application\/json/);
    const document = await send('/openapi.json');
    assert.equal(JSON.parse(document.body.toString()).openapi, '3.1.0');
  });
});

describe('the files of the dashboard', () => {
  it('are kept by browsers for ever, because their names change with their content', async () => {
    const { status, headers, body } = await send(ASSET);
    assert.equal(status, 200);
    assert.equal(body.toString(), SCRIPT);
    assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable');
    assert.equal(headers['content-type'], 'application/javascript; charset=utf-8');
  });

  it('are sent compressed to browsers that accept it', async () => {
    const brotli = await send(ASSET, { 'accept-encoding': 'gzip, deflate, br, zstd' });
    assert.equal(brotli.headers['content-encoding'], 'br');
    assert.equal(brotliDecompressSync(brotli.body).toString(), SCRIPT);
    const gzip = await send(ASSET, { 'accept-encoding': 'gzip' });
    assert.equal(gzip.headers['content-encoding'], 'gzip');
    assert.equal(gunzipSync(gzip.body).toString(), SCRIPT);
    for (const { headers, body } of [brotli, gzip]) {
      assert.equal(headers['content-type'], 'application/javascript; charset=utf-8');
      assert.equal(headers['content-length'], String(body.length));
      assert.equal(headers.vary, 'accept-encoding');
      assert.ok(body.length < SCRIPT.length / 10);
    }
    assert.equal((await send(ASSET)).headers['content-encoding'], undefined);
    const page = await send('/machines', { ...BROWSER, 'accept-encoding': 'br' });
    assert.equal(brotliDecompressSync(page.body).toString(), PAGE);
  });

  it('that do not exist are errors of the API, which browsers do not keep', async () => {
    for (const name of ['index-old.js', 'index-a1_B2-c3.css', '', '.', 'index-a1_B2-c3.js.br', '.hidden.js']) {
      const answer = await send(`/assets/${name}`);
      assertNotFound(answer, name);
      assert.doesNotMatch(String(answer.headers['cache-control']), /max-age|immutable/, name);
    }
  });

  it('are only those of the folder, in whatever way a path names others', async () => {
    const ways = [
      '../secret.js',
      '..%2fsecret.js',
      '%2e%2e/secret.js',
      '..%5csecret.js',
      '%2e%2e%2f%2e%2e%2foutside.js',
      '/etc/passwd',
      '%2fetc%2fpasswd',
      '..%252fsecret.js',
      'x%00.js',
      'a/../../secret.js',
      `${'x'.repeat(2000)}.js`,
    ];
    for (const way of ways) {
      const answer = await send(`/assets/${way}`, { accept: '*/*' });
      assertNotFound(answer, way);
    }
  });
});

describe('without a built dashboard', () => {
  it('the first page is the reference of the API, and the others are unknown paths', async () => {
    const { api } = await startTestBed();
    const { status, headers } = await api('GET', '/', { key: null });
    assert.deepEqual([status, headers.get('location')], [302, '/docs']);
    for (const address of ['/machines', '/assets/index.js', '/nope']) {
      const answer = await api('GET', address, { key: null, headers: BROWSER });
      assert.deepEqual([answer.status, answer.json?.code], [404, 'not_found'], address);
    }
  });
});
