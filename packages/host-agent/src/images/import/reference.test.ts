import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type ImportSource, parseReference } from './reference.ts';

const DIGEST = `@sha256:${'0'.repeat(64)}`;
const registry = (name: string, version: string, isInsecure = false): ImportSource => {
  return { kind: 'registry', name, version, isInsecure };
};

describe('reference', () => {
  const known: [string, ImportSource][] = [
    ['alpine', registry('alpine', ':latest')],
    ['alpine:3.20', registry('alpine', ':3.20')],
    ['docker://ghcr.io/a/b_c:V1', registry('ghcr.io/a/b_c', ':V1')],
    [`host.example:5000/a:tag${DIGEST}`, registry('host.example:5000/a', DIGEST)],
    ['host.example:5000/a', registry('host.example:5000/a', ':latest')],
    ['docker://127.0.0.1:5000/a:1', registry('127.0.0.1:5000/a', ':1', true)],
    ['localhost/a', registry('localhost/a', ':latest', true)],
    ['[::1]:5000/a', registry('[::1]:5000/a', ':latest', true)],
  ];
  for (const [text, source] of known) {
    test(text, () => assert.deepEqual(parseReference(text, false), source));
  }

  test('a remote registry without a certificate is accepted only on request', () => {
    assert.deepEqual(parseReference('registry.example/a', true), registry('registry.example/a', ':latest', true));
    assert.deepEqual(parseReference('localhost.example/a', false), registry('localhost.example/a', ':latest', false));
  });

  const unknown = [
    '',
    '-x',
    'a b',
    '--help',
    'A/../b',
    'a:',
    'a@sha256:0',
    'dir:/x',
    'docker-daemon:a:b',
    '/abs',
    'a:b:c',
  ];
  for (const text of [...unknown, 'oci-archive:/x', 'a\nb', 'a/../b', 'a//b', '-host:1/a', 'docker://', 'http://a/b']) {
    test(`"${text}" names no image`, () => {
      assert.throws(() => parseReference(text, false), { name: 'ImageError', message: /names no image/ });
    });
  }
});

describe('reference of a file', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'image-reference-'));
    await mkdir(path.join(folder, 'a:b'));
    for (const file of ['index.json', 'a:b/index.json', 'saved.tar']) await writeFile(path.join(folder, file), '');
  });
  after(() => rm(folder, { recursive: true }));

  test("a layout with and without a tag; a colon belongs to the folder's name if that folder exists", () => {
    assert.deepEqual(parseReference(`oci:${folder}`, false), { kind: 'oci', folder, tag: undefined });
    assert.deepEqual(parseReference(`oci:${folder}:v1`, false), { kind: 'oci', folder, tag: 'v1' });
    const odd = path.join(folder, 'a:b');
    assert.deepEqual(parseReference(`oci:${odd}`, false), { kind: 'oci', folder: odd, tag: undefined });
  });

  test('an archive with and without an image name', () => {
    const file = path.join(folder, 'saved.tar');
    const archive = (reference: string | undefined) => ({ kind: 'docker-archive', file, reference });
    assert.deepEqual(parseReference(`docker-archive:${file}`, false), archive(undefined));
    assert.deepEqual(parseReference(`docker-archive:${file}:a/b:c`, false), archive('a/b:c'));
  });

  test('a missing file or a folder without a layout is an error', () => {
    assert.throws(
      () => parseReference(`oci:${folder}/none`, false),
      /none is not an OCI layout: it has no index\.json/,
    );
    assert.throws(() => parseReference(`docker-archive:${folder}/none`, false), /There is no file .*none/);
  });
});
