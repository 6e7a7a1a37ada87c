// Tests the content of files, both ways, against a guest that the test plays: headers, conditions and parts, that a
// body which is not complete never looks complete, and that an upload reaches the guest whole or is cut.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import fc from 'fast-check';
import { guestEntry, playFile } from './support/guest-files.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, keys, plane } = bed;
const machine: string = (await api('POST', '/v1/machines')).json.id;
const content = `/v1/machines/${machine}/files/content?path=/root/hello.txt`;
const origin = `http://${plane.address.host}:${plane.address.port}`;
const HELLO = Buffer.from('hello\n');

type Params = Record<string, unknown> & { start?: number; end?: number };
const asked: Params[] = [];

/** Makes the guest answer each `files.read` with a stream of `play`. */
function onRead(play: (params: Params) => PlayedStream): void {
  host.guestStreams['files.read'] = (_machineId, params: Params) => {
    asked.push(params);
    return play(params);
  };
}
const serve = (bytes: Buffer, etag = 'v1') => onRead((params) => playFile(bytes, params, etag));

type Got = { status: number; headers: IncomingMessage['headers']; bytes: Buffer; isWhole: boolean };

/** Sends a GET and reads the body, also one that breaks off. */
async function get(headers: Record<string, string> = {}, method = 'GET'): Promise<Got> {
  const sent = request(`${origin}${content}`, {
    method,
    headers: { authorization: `Bearer ${keys.full}`, ...headers },
  });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  response.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', () => undefined);
  await once(response, 'close').catch(() => undefined);
  const { statusCode: status = 0, complete } = response;
  return { status, headers: response.headers, bytes: Buffer.concat(chunks), isWhole: complete };
}

describe('a download', () => {
  it('has the bytes, and the headers of their version', async () => {
    serve(HELLO);
    const { status, headers, bytes, isWhole } = await get();
    assert.deepEqual([status, isWhole, bytes.toString()], [200, true, 'hello\n']);
    assert.equal(headers['content-type'], 'application/octet-stream');
    assert.equal(headers['content-length'], '6');
    assert.equal(headers.etag, '"v1"');
    assert.equal(headers['last-modified'], 'Fri, 02 Jan 2026 03:05:00 GMT');
    assert.equal(headers['accept-ranges'], 'bytes');
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert(headers['x-request-id']);
    assert.deepEqual(asked.at(-1), { path: '/root/hello.txt' });
  });

  it('of an empty file, and of a large one, is exact', async () => {
    serve(Buffer.alloc(0));
    const empty = await get();
    assert.deepEqual([empty.status, empty.headers['content-length'], empty.isWhole], [200, '0', true]);
    const large = randomBytes(5 * 1024 * 1024 + 7);
    serve(large);
    const { bytes, isWhole } = await get();
    assert.deepEqual([isWhole, sha(bytes)], [true, sha(large)]);
  });

  it('by HEAD has the same headers and no body, and the guest sends nothing more', async () => {
    let stream: PlayedStream | undefined;
    onRead(() => {
      stream = playStream({ entry: guestEntry(), start: 0, length: 6, etag: 'v1' });
      return stream;
    });
    const { status, headers, bytes } = await get({ range: 'bytes=1-2' }, 'HEAD');
    assert.deepEqual([status, headers['content-length'], headers.etag, bytes.length], [200, '6', '"v1"', 0]);
    await until(() => stream?.duplex.destroyed === true, 'the stream is closed');
  });

  it('is 304 while the ETag is the one of If-None-Match', async () => {
    serve(HELLO);
    for (const header of ['"v1"', 'W/"v1"', '"v0", "v1"', '*']) {
      const { status, headers, bytes } = await get({ 'if-none-match': header });
      assert.deepEqual([status, headers.etag, bytes.length], [304, '"v1"', 0], header);
    }
    assert.equal((await get({ 'if-none-match': '"v0"' })).status, 200);
  });

  it('of a file that does not know its size has no Content-Length', async () => {
    onRead(() => {
      const stream = playStream({ entry: guestEntry({ size: 0 }), start: 0, length: null, etag: 'p' });
      stream.guest.write('from the kernel');
      stream.finish({});
      return stream;
    });
    for (const headers of [{}, { range: 'bytes=0-3' }] as Record<string, string>[]) {
      const got = await get(headers);
      assert.deepEqual([got.status, got.headers['content-length'], got.isWhole], [200, undefined, true]);
      assert.equal(got.bytes.toString(), 'from the kernel');
    }
  });

  it('is refused with the code and the text of the guest', async () => {
    for (const [code, status] of [
      ['not_found', 404],
      ['conflict', 409],
    ] as const) {
      host.guestStreams['files.read'] = () => {
        throw new ServiceError(code, 'not this one: /root/hello.txt');
      };
      const { status: told, json } = await api('GET', content);
      assert.deepEqual([told, json], [status, { code, detail: 'not this one: /root/hello.txt' }]);
    }
  });
});

describe('a part of a file', () => {
  it('is 206 with the range that it is', async () => {
    serve(HELLO);
    for (const [range, part, contentRange] of [
      ['bytes=0-0', 'h', 'bytes 0-0/6'],
      ['bytes=2-', 'llo\n', 'bytes 2-5/6'],
      ['bytes=3-100', 'lo\n', 'bytes 3-5/6'],
      ['bytes=-2', 'o\n', 'bytes 4-5/6'],
      ['bytes=-100', 'hello\n', 'bytes 0-5/6'],
    ] as const) {
      const { status, headers, bytes } = await get({ range });
      assert.deepEqual([status, bytes.toString(), headers['content-range']], [206, part, contentRange], range);
      assert.equal(headers['content-length'], String(part.length));
      assert.equal(headers.etag, '"v1"');
    }
  });

  it('of any file and any range is that part of the bytes', async () => {
    const property = fc.asyncProperty(
      fc.uint8Array({ minLength: 1, maxLength: 200 }),
      fc.nat(220),
      fc.nat(220),
      async (array, a, b) => {
        const file = Buffer.from(array);
        serve(file);
        const [start, end] = [Math.min(a, b), Math.max(a, b)];
        const { status, bytes } = await get({ range: `bytes=${start}-${end}` });
        if (start >= file.length) assert.equal(status, 416);
        else assert.deepEqual([status, bytes], [206, file.subarray(start, end + 1)]);
      },
    );
    await fc.assert(property, { numRuns: 60 });
  });

  it('behind the end of the file is 416 with the size', async () => {
    serve(HELLO);
    for (const range of ['bytes=6-', 'bytes=100-200', 'bytes=-0', `bytes=${'9'.repeat(40)}-`]) {
      const { status, headers, json } = await api('GET', content, { headers: { range } });
      assert.deepEqual([status, json.code], [416, 'range_not_satisfiable'], range);
      assert.equal(headers.get('content-range'), 'bytes */6');
    }
  });

  it('that is malformed or several parts is the whole file', async () => {
    serve(HELLO);
    for (const range of ['bytes=0-1,3-4', 'bytes=5-2', 'lines=1-2']) assert.equal((await get({ range })).status, 200);
  });

  it('is only sent for the ETag of If-Range, and otherwise the whole file of now', async () => {
    serve(HELLO, 'v2');
    const same = await get({ range: 'bytes=2-', 'if-range': '"v2"' });
    assert.deepEqual([same.status, same.bytes.toString()], [206, 'llo\n']);
    const changed = await get({ range: 'bytes=2-', 'if-range': '"v1"' });
    assert.deepEqual([changed.status, changed.bytes.toString(), changed.headers.etag], [200, 'hello\n', '"v2"']);
  });
});

describe('a guest that lies about a file', () => {
  const lying = (head: object, bytes: string, end: (stream: PlayedStream) => void) =>
    onRead(() => {
      const stream = playStream({ entry: guestEntry(), start: 0, length: 6, etag: 'v1', ...head });
      if (bytes !== '') stream.guest.write(bytes);
      end(stream);
      return stream;
    });
  const finish = (stream: PlayedStream) => stream.finish({});

  it('and sends fewer bytes than it announced breaks the connection', async () => {
    for (const bytes of ['', 'hell', 'hello']) {
      lying({}, bytes, finish);
      const { status, isWhole } = await get();
      assert.deepEqual([status, isWhole], [200, false], bytes);
    }
  });

  it('and sends more bytes than it announced breaks the connection', async () => {
    for (const bytes of ['hello\n!', 'x'.repeat(300_000)]) {
      lying({}, bytes, finish);
      const { isWhole, bytes: got } = await get();
      assert.equal(isWhole, false);
      assert(got.length <= 6);
    }
  });

  it('and ends with an error after all bytes, or is cut, breaks the connection', async () => {
    lying({}, 'hello\n', (stream) => stream.fail(new ServiceError('conflict', 'the file changed')));
    assert.equal((await get()).isWhole, false);
    lying({}, 'hello\n', (stream) => setImmediate(() => stream.duplex.destroy()));
    assert.equal((await get()).isWhole, false);
    lying({ entry: guestEntry({ size: 0 }), length: null }, 'text', (stream) => stream.fail(new Error('cut')));
    assert.equal((await get()).isWhole, false);
  });

  it('in the head of its stream gets no answer out', async () => {
    for (const head of [
      { length: -1 },
      { length: 7 },
      { start: 1 },
      { etag: '' },
      { etag: 'a"b' },
      { etag: 'a\r\nset-cookie: x' },
      { etag: 'x'.repeat(200) },
      { entry: guestEntry({ mtime_ns: 'x' }) },
      { entry: {} },
    ]) {
      lying(head, '', () => undefined);
      const { status, json } = await api('GET', content);
      assert.deepEqual([status, json.code], [500, 'internal_error'], JSON.stringify(head).slice(0, 60));
    }
  });

  it('about the part that it sends gets no answer out', async () => {
    for (const head of [{ start: 0 }, { start: 2, length: 3 }, { start: 2, length: 0 }]) {
      lying(head, '', () => undefined);
      assert.equal((await api('GET', content, { headers: { range: 'bytes=2-3' } })).status, 500, JSON.stringify(head));
    }
  });
});

describe('a download that ends early', () => {
  it('because the client leaves ends the stream of the guest', async () => {
    let stream: PlayedStream | undefined;
    onRead(() => {
      stream = playStream({ entry: guestEntry({ size: 1e9 }), start: 0, length: 1e9, etag: 'v1' });
      stream.guest.write(Buffer.alloc(200_000));
      return stream;
    });
    const sent = request(`${origin}${content}`, { headers: { authorization: `Bearer ${keys.full}` } });
    sent.on('error', () => undefined).end();
    await once(sent, 'response');
    sent.destroy();
    await until(() => stream?.duplex.destroyed === true, 'the guest was told');
  });
});

/** Starts a PUT whose body the test sends itself. */
function put(headers: Record<string, string> = {}, path = content) {
  const sent = request(`${origin}${path}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${keys.full}`, ...headers },
  });
  const answered = once(sent, 'response').then(async (event) => {
    const [response] = event as [IncomingMessage];
    return { status: response.statusCode, json: JSON.parse((await buffer(response)).toString()) };
  });
  answered.catch(() => undefined);
  sent.on('error', () => undefined);
  return { sent, answered };
}

/** Makes the guest keep every upload, as a well-behaved guest does. */
function keepUploads(): { params: Params; bytes: Buffer }[] {
  const kept: { params: Params; bytes: Buffer }[] = [];
  host.guestStreams['files.write'] = (_machineId, params: Params) => {
    const stream = playStream({});
    buffer(stream.guest).then(
      (bytes) => {
        kept.push({ params, bytes });
        stream.finish({ entry: guestEntry({ size: bytes.length, path: String(params.path) }) });
      },
      () => undefined,
    );
    return stream;
  };
  return kept;
}

describe('an upload', () => {
  it('of any length and content type reaches the guest byte for byte, and is answered with the entry', async () => {
    const kept = keepUploads();
    const large = randomBytes(3 * 1024 * 1024 + 1);
    for (const [body, type] of [
      [Buffer.alloc(0), undefined],
      [Buffer.from('{"not":"parsed"'), 'application/json'],
      [Buffer.from('a=1&b=2'), 'application/x-www-form-urlencoded'],
      [large, undefined],
    ] as const) {
      const { sent, answered } = put(type === undefined ? {} : { 'content-type': type });
      sent.end(body);
      const { status, json } = await answered;
      assert.deepEqual([status, json.size, json.path], [200, body.length, '/root/hello.txt']);
      assert.equal(sha(kept.at(-1)?.bytes ?? Buffer.alloc(1)), sha(body));
    }
    const { params } = kept.at(-1) ?? {};
    assert.deepEqual(params, { path: '/root/hello.txt', mode: null, user: null, parents: true, exclusive: false });
  });

  it('passes mode, user, parents and If-None-Match: * on', async () => {
    const kept = keepUploads();
    const path = `${content}&mode=0600&user=me:us&parents=false`;
    const { status } = await api('PUT', path, { rawBody: 'x', headers: { 'if-none-match': '*' } });
    assert.equal(status, 200);
    const expected = { path: '/root/hello.txt', mode: 0o600, user: 'me:us', parents: false, exclusive: true };
    assert.deepEqual(kept.at(-1)?.params, expected);
  });

  it('passes If-Match on, and writes nothing with a guest that does not know it', async () => {
    const asked: Params[] = [];
    let received: Buffer[] = [];
    const play = (head: object) => {
      host.guestStreams['files.write'] = (_machineId, params: Params) => {
        asked.push(params);
        const stream = playStream(head);
        stream.guest.on('data', (bytes: Buffer) => received.push(bytes));
        stream.guest.on('end', () => stream.finish({ entry: guestEntry() }));
        return stream;
      };
    };
    const write = () => api('PUT', content, { rawBody: 'x', headers: { 'if-match': '"v1"' } });
    play({ if_etag: 'v1' });
    assert.equal((await write()).status, 200);
    assert.equal(asked.at(-1)?.if_etag, 'v1');
    received = [];
    play({});
    const { status, json } = await write();
    assert.deepEqual([status, json.code], [409, 'conflict']);
    assert.match(json.detail, /older version/);
    assert.equal(received.length, 0);
  });

  it('is 400 for a bad mode, user or condition, and the guest is not asked', async () => {
    const kept = keepUploads();
    for (const query of ['mode=0999', 'mode=644x', 'mode=', 'user=', 'parents=yes', 'recursive=true']) {
      assert.equal((await api('PUT', `${content}&${query}`, { rawBody: 'x' })).status, 400, query);
    }
    for (const headers of [
      { 'if-none-match': '"v1"' },
      { 'if-match': '*' },
      { 'if-match': '"v1", "v2"' },
      { 'if-match': 'W/"v1"' },
      { 'if-match': '"v1"', 'if-none-match': '*' },
    ]) {
      const { status, json } = await api('PUT', content, { rawBody: 'x', headers });
      assert.deepEqual([status, json.code], [400, 'validation_error']);
    }
    assert.equal(kept.length, 0);
  });

  it('is answered before its end when the guest refuses the rest', async () => {
    for (const [code, status] of [
      ['disk_full', 507],
      ['conflict', 409],
    ] as const) {
      host.guestStreams['files.write'] = () => {
        const stream = playStream({});
        stream.guest.once('data', () => stream.fail(new ServiceError(code, 'no room for /root/hello.txt')));
        return stream;
      };
      const { sent, answered } = put();
      sent.write(Buffer.alloc(100_000));
      assert.deepEqual(await answered, { status, json: { code, detail: 'no room for /root/hello.txt' } });
      // The rest is read and dropped, so the connection can be used again.
      sent.end(Buffer.alloc(3_000_000));
      await once(sent, 'close');
    }
  });

  it('that breaks off at any byte is cut, and never ends well', async () => {
    for (const length of [0, 1, 70_000]) {
      let cut: PlayedStream | undefined;
      const opened = Promise.withResolvers<void>();
      host.guestStreams['files.write'] = () => {
        const stream = playStream({});
        stream.duplex.on('close', () => {
          cut = stream;
        });
        let seen = 0;
        stream.guest.on('data', (chunk: Buffer) => {
          seen += chunk.length;
          if (seen >= length) opened.resolve();
        });
        if (length === 0) opened.resolve();
        return stream;
      };
      const { sent } = put({ 'content-length': '1000000' });
      if (length > 0) sent.write(Buffer.alloc(length));
      else sent.flushHeaders();
      await opened.promise;
      sent.destroy();
      await until(() => cut !== undefined, 'the stream is closed');
      assert.equal(cut?.duplex.writableEnded, false, `the stream of ${length} bytes ended as if it were whole`);
    }
  });

  it('to a guest that confirms before it has everything, or that sends bytes, is an error', async () => {
    const hostile: ((stream: PlayedStream) => void)[] = [
      (stream) => stream.finish({ entry: guestEntry() }),
      (stream) => void stream.guest.write('bytes'),
    ];
    for (const act of hostile) {
      host.guestStreams['files.write'] = () => {
        const stream = playStream({});
        act(stream);
        return stream;
      };
      const { sent, answered } = put();
      sent.write('x');
      const { status, json } = await answered;
      assert.deepEqual([status, json.code], [500, 'internal_error']);
      sent.destroy();
    }
  });

  it('whose result has a wrong shape is an error', async () => {
    for (const result of [{}, null, { entry: { path: '/a' } }, { entry: guestEntry({ size: -5 }) }]) {
      host.guestStreams['files.write'] = () => {
        const stream = playStream({});
        stream.guest.resume().on('end', () => stream.finish(result));
        return stream;
      };
      const { status, json } = await api('PUT', content, { rawBody: 'x' });
      assert.deepEqual([status, json.code], [500, 'internal_error'], JSON.stringify(result));
    }
  });

  it('whose result has no path, because it is long, has the path that was asked for', async () => {
    host.guestStreams['files.write'] = () => {
      const stream = playStream({});
      const { path: _path, ...entry } = guestEntry();
      stream.guest.resume().on('end', () => stream.finish({ entry }));
      return stream;
    };
    assert.equal((await api('PUT', content, { rawBody: 'x' })).json.path, '/root/hello.txt');
  });

  it('waits for a slow guest and holds little of the body meanwhile', async () => {
    let stream: PlayedStream | undefined;
    host.guestStreams['files.write'] = () => {
      stream = playStream({});
      return stream;
    };
    const { sent, answered } = put();
    let taken = 0;
    const send = () => {
      while (taken < 200_000_000 && sent.write(Buffer.alloc(65_536))) taken += 65_536;
    };
    sent.on('drain', send);
    send();
    await until(() => stream !== undefined, 'the stream is open');
    // The kernel's buffers and those of each hop fill up, and then nothing more is taken.
    let before = -1;
    await until(() => {
      const isStill = before === taken;
      before = taken;
      return isStill;
    }, 'the upload stands still');
    assert(taken < 32_000_000, `${taken} bytes were taken from the client`);
    sent.off('drain', send);
    sent.end();
    const bytes = await buffer(stream?.guest as PlayedStream['guest']);
    stream?.finish({ entry: guestEntry({ size: bytes.length }) });
    assert.equal((await answered).status, 200);
  });
});

const sha = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
