// Imports layouts with JSON documents that different programs read differently, with the real skopeo and umoci. Both
// are written in Go, whose JSON parser also accepts "Layers" for "layers" and uses the last of several such keys.
// JavaScript takes them for different keys.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { importImage } from '../src/images/import/import.ts';
import type { PublishedImage } from '../src/images/publish.ts';
import { lookInto, writeCache } from './support/image-cache.ts';
import { digestOf, type LayoutImage, writeLayout } from './support/oci-layout.ts';

describe('an import', { skip: process.getuid?.() !== 0 }, () => {
  let folder: string;
  let cacheDir: string;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'image-documents-'));
    cacheDir = path.join(folder, 'cache');
    await writeCache(cacheDir);
  });
  after(() => rm(folder, { recursive: true }));

  const layoutOf = (name: string, layers: LayoutImage['layers']) => writeLayout(path.join(folder, name), { layers });
  const importLayout = (layout: string) =>
    importImage({ cacheDir, name: 'test', reference: `oci:${layout}`, isInsecure: false, log: () => {} });
  const list = ({ image }: PublishedImage) => lookInto(image.rootfs.path, 'ls -p /');
  const blobOf = (layout: string, digest: string) =>
    path.join(layout, 'blobs', 'sha256', digest.replace('sha256:', ''));
  const readJson = async (file: string) => JSON.parse(await readFile(file, 'utf8'));
  const readEntry = async (layout: string) => (await readJson(path.join(layout, 'index.json'))).manifests[0];
  const writeBlob = async (layout: string, text: string) => {
    const digest = digestOf(Buffer.from(text));
    await writeFile(blobOf(layout, digest), text);
    return { digest, size: text.length };
  };
  const writeIndex = (layout: string, entry: object) =>
    writeFile(path.join(layout, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [entry] }));

  test('unpacks the layers that were checked, although umoci would find another list of them (RES-12)', async () => {
    const layout = await layoutOf('layers', [[{ name: 'checked' }], [{ name: 'hidden' }]]);
    const entry = await readEntry(layout);
    const { config, layers } = await readJson(blobOf(layout, entry.digest));
    const configuration = await readJson(blobOf(layout, config.digest));
    const { diff_ids } = configuration.rootfs;
    const rootfs = { type: 'layers', diff_ids: diff_ids.slice(0, 1), Diff_ids: diff_ids };
    const twoLists = await writeBlob(layout, JSON.stringify({ ...configuration, rootfs }));
    const manifest = {
      schemaVersion: 2,
      config: { ...config, ...twoLists },
      layers: layers.slice(0, 1),
      Layers: layers,
    };
    await writeIndex(layout, { ...entry, ...(await writeBlob(layout, JSON.stringify(manifest))) });
    const names = await list(await importLayout(layout));
    assert.match(names, /\/checked\//);
    assert.doesNotMatch(names, /\/hidden\//);
  });

  test('copies the image that the index names, although skopeo would find another digest (RES-12)', async () => {
    const honest = await layoutOf('honest', [[{ name: 'honest' }]]);
    const forged = await layoutOf('forged', [[{ name: 'forged' }]]);
    const [wanted, other] = [await readEntry(honest), await readEntry(forged)];
    await writeIndex(forged, { ...wanted, Digest: other.digest, Size: other.size });
    await assert.rejects(importLayout(forged), { name: 'ImageError' });
    assert.match(await list(await importLayout(honest)), /\/honest\//);
  });

  test('refuses a manifest that has the digest of another image, whose disk would then be this one (RES-12)', async () => {
    const honest = await layoutOf('genuine', [[{ name: 'genuine' }]]);
    const forged = await layoutOf('false', [[{ name: 'false' }]]);
    const [wanted, other] = [await readEntry(honest), await readEntry(forged)];
    await writeFile(blobOf(forged, wanted.digest), await readFile(blobOf(forged, other.digest)));
    await writeIndex(forged, { ...wanted, size: other.size });
    const refused = { name: 'ImageError', message: /its manifest has the digest sha256:.* instead of/ };
    await assert.rejects(importLayout(forged), refused);
    assert.match(await list(await importLayout(honest)), /\/genuine\//);
  });
});
