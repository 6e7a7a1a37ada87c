// Imports images from a real registry on this machine.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { importImage } from '../src/images/import/import.ts';
import { lookInto, writeCache } from './support/image-cache.ts';
import { writeLayout } from './support/oci-layout.ts';
import { type Registry, startRegistry } from './support/registry.ts';

describe('an import from a registry', { skip: process.getuid?.() !== 0 }, () => {
  let folder: string;
  let cacheDir: string;
  let registry: Registry;

  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'image-registry-'));
    cacheDir = path.join(folder, 'cache');
    await writeCache(cacheDir);
    registry = await startRegistry(path.join(folder, 'registry'));
  });
  after(async () => {
    await registry.stop();
    await rm(folder, { recursive: true });
  });

  const importFrom = (reference: string, log: (line: string) => void = () => {}) =>
    importImage({ cacheDir, name: 'imported', reference, isInsecure: false, log });
  const layoutOf = (name: string, data: string, architecture = 'amd64') => {
    const platform = { os: 'linux', architecture };
    return writeLayout(path.join(folder, name), { layers: [[{ name: 'which', data }]], tag: 'v1', platform });
  };

  test('gets the image that the tag currently names, needs no certificate for a local registry, and is quick when nothing changed', async () => {
    await registry.push(await layoutOf('one', 'one'), 'v1', 'group/moving');
    const reference = `docker://${registry.address}/group/moving:v1`;
    const one = await importFrom(reference);
    assert.equal(await lookInto(one.image.rootfs.path, 'cat /which'), 'one');
    assert.equal(one.image.description, `Imported from ${reference}`);

    const lines: string[] = [];
    await importFrom(`${registry.address}/group/moving:v1`, (line) => lines.push(line));
    assert.ok(!lines.some((line) => line.startsWith('fetching')), lines.join('\n'));

    await registry.push(await layoutOf('two', 'two'), 'v1', 'group/moving');
    const two = await importFrom(reference);
    assert.equal(await lookInto(two.image.rootfs.path, 'cat /which'), 'two');
    const before = await importFrom(`docker://${registry.address}/group/moving@${one.image.digest}`);
    assert.equal(before.image.rootfs.path, one.image.rootfs.path);
  });

  test("selects the host's platform from an index of several", async () => {
    const layout = await layoutOf('amd64', 'amd64');
    const images = ['arm64', 'amd64'].map((architecture) => ({
      layers: [[{ name: 'which', data: architecture }]],
      platform: { os: 'linux', architecture },
      isPlatformNamed: true,
    }));
    await writeLayout(layout, ...images);
    // In a registry, a tag can refer to an index, so push the layout's index as such.
    const index = await readFile(path.join(layout, 'index.json'));
    const digest = createHash('sha256').update(index).digest('hex');
    const mediaType = 'application/vnd.oci.image.index.v1+json';
    await writeFile(path.join(layout, 'blobs', 'sha256', digest), index);
    const annotations = { 'org.opencontainers.image.ref.name': 'v1' };
    const manifests = [{ mediaType, digest: `sha256:${digest}`, size: index.length, annotations }];
    await writeFile(path.join(layout, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests }));
    await registry.push(layout, 'v1', 'several', { all: true });
    const { image } = await importFrom(`docker://${registry.address}/several:v1`);
    assert.equal(await lookInto(image.rootfs.path, 'cat /which'), 'amd64');
  });

  test('of a missing image, or from an unreachable registry, reports which it is and leaves nothing', async () => {
    const absent = importFrom(`docker://${registry.address}/nothing:v1`);
    await assert.rejects(absent, { name: 'ImageError', message: /^The registry has no such image/ });
    const gone = importFrom('docker://127.0.0.1:1/nothing:v1');
    await assert.rejects(gone, { name: 'ImageError', message: /^The registry does not answer/ });
    assert.deepEqual(await readdir(path.join(cacheDir, 'import')), []);
  });

  test('from a registry that sends wrong bytes for a digest is refused', async () => {
    const layout = await layoutOf('lying', 'honest');
    await registry.push(layout, 'v1', 'lying');
    const server = createServer(async (request, response) => {
      const answer = await fetch(`http://${registry.address}${request.url}`, {
        method: request.method ?? 'GET',
        headers: { accept: request.headers.accept ?? '*/*' },
      });
      const body = Buffer.from(await answer.arrayBuffer());
      const type = answer.headers.get('content-type') ?? '';
      if (request.url?.includes('/blobs/') && body[0] === 0x1f) body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
      response.writeHead(answer.status, { 'content-type': type, 'content-length': body.length }).end(body);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    try {
      const reference = `docker://127.0.0.1:${port}/lying:v1`;
      await assert.rejects(importFrom(reference), { name: 'ImageError', message: /digest|checksum/i });
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});
