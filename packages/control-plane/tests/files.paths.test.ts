// Tests the encoding of paths, with any bytes, and the rules of conditional and range requests.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkPath, decodePath, encodePath } from '@sandbar/contract/file-path.ts';
import fc from 'fast-check';
import { allowsRange, isNoneMatch, parseRange } from '../src/files/conditions.ts';

describe('a path', () => {
  it('of any bytes is the same after it was encoded and decoded', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        const text = encodePath(bytes);
        assert.match(text, /^[A-Za-z0-9\-._~/%]*$/);
        assert.deepEqual(Buffer.from(decodePath(text)), Buffer.from(bytes));
      }),
    );
  });

  it('in UTF-8 may be encoded or not, also in part', () => {
    for (const text of ['/ü/%C3%BC', '/%c3%bc/ü']) assert.equal(Buffer.from(decodePath(text)).toString(), '/ü/ü');
    assert.equal(encodePath('/ü b'), '/%C3%BC%20b');
  });

  it('with a % that is no escape is refused', () => {
    for (const text of ['/%', '/%4', '/%zz', '/%4g', '/a%']) {
      assert.throws(() => decodePath(text), { code: 'validation_error' }, text);
    }
  });

  it('must be absolute, without NUL and within the limits of Linux', () => {
    const name = 'n'.repeat(255);
    for (const path of ['/', '//', '/.', '/..', '/a\nb', `/${name}/${name}`, `/${'n/'.repeat(2047)}`, '/\xff']) {
      checkPath(Buffer.from(path, 'latin1'));
    }
    for (const path of ['', 'a', '.', '/a\0', `/${name}n`, `/${name}n/a`, `${'/n'.repeat(2048)}/`]) {
      assert.throws(() => checkPath(Buffer.from(path, 'latin1')), { code: 'validation_error' }, path.slice(0, 20));
    }
  });
});

describe('a Range', () => {
  it('of one part is understood', () => {
    assert.deepEqual(parseRange('bytes=0-0'), { start: 0, end: 0 });
    assert.deepEqual(parseRange('bytes=7-'), { start: 7 });
    assert.deepEqual(parseRange('bytes=-5'), { last: 5 });
    assert.deepEqual(parseRange('Bytes= 3-9 '), { start: 3, end: 9 });
    assert.deepEqual(parseRange(`bytes=${'9'.repeat(30)}-`), { start: Number.MAX_SAFE_INTEGER });
  });

  it('that is malformed or has several parts is ignored', () => {
    for (const header of [undefined, '', 'bytes=', 'bytes=-', 'bytes=5-4', 'bytes=0-1,3-4', 'lines=0-1', 'bytes=a-b']) {
      assert.equal(parseRange(header), undefined, header);
    }
  });

  it('counts only if If-Range is exactly the ETag', () => {
    assert.equal(allowsRange(undefined, '"a"'), true);
    assert.equal(allowsRange('"a"', '"a"'), true);
    for (const header of ['"b"', 'W/"a"', 'a', 'Sat, 01 Jan 2026 00:00:00 GMT'])
      assert.equal(allowsRange(header, '"a"'), false);
  });
});

describe('If-None-Match', () => {
  it('matches its ETags, weak or strong, and * matches every file', () => {
    for (const header of ['"a"', 'W/"a"', '"x", "a"', '*']) assert.equal(isNoneMatch(header, '"a"'), true, header);
    for (const header of [undefined, '"b"', 'a', '']) assert.equal(isNoneMatch(header, '"a"'), false, header);
  });
});
