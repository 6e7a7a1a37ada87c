import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseConfiguration, parseManifest } from './layout-documents.ts';
import { indexOf, parseEntries } from './layout-index.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;
const DESCRIPTOR = { mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: DIGEST, size: 7 };
const configuration = (config: string, platform = '"os":"linux","architecture":"amd64"') =>
  `{${platform},"config":${config},"rootfs":{"diff_ids":[]}}`;

describe('the documents of a layout', () => {
  test('lose everything that an import does not use (RES-12)', () => {
    const entry = { ...DESCRIPTOR, Digest: 'other', urls: ['http://other'], annotations: { a: 'b' } };
    const [chosen] = parseEntries(JSON.stringify({ manifests: [entry] }), 'index.json');
    assert(chosen);
    const annotations = { 'org.opencontainers.image.ref.name': 'image' };
    const manifests = [{ ...DESCRIPTOR, annotations }];
    assert.deepEqual(JSON.parse(indexOf(chosen, 'image')), { schemaVersion: 2, manifests });
    const parts = { config: DESCRIPTOR, layers: [DESCRIPTOR] };
    assert.deepEqual(parseManifest(JSON.stringify({ ...parts, Layers: [] })), parts);
    assert.deepEqual(parseConfiguration(configuration('{"User":"a","Cmd":["x"]}')).config, { User: 'a' });
  });

  test('are refused when lists are nested in a value, or a platform has an odd name (RES-12)', () => {
    for (const value of ['[[]]', `${'['.repeat(100_000)}${']'.repeat(100_000)}`, '[{}]', '{}']) {
      assert.throws(() => parseConfiguration(configuration(`{"Env":${value}}`)), {
        message: /"Env" of its configuration/,
      });
    }
    const odd = configuration('{}', '"os":"linux\\u001b[2J","architecture":"amd64"');
    assert.throws(() => parseConfiguration(odd), { message: /lacks "os"/ });
  });
});
