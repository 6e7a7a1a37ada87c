// Tests how a host fetches blobs: cut connections, wrong digests, stores that ignore ranges, and restarts of the agent.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { PART_BYTES, type StoredPart } from '@sandbar/contract/host-blobs.ts';
import { BlobStore } from '../src/blobs/blob-store.ts';
import { uploadPart } from '../src/blobs/part-transfer.ts';
import { diskFull } from '../src/storage/overlay.ts';

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const room = {
  isShort: false,
  refuseWhenShort: () => {
    if (room.isShort) throw diskFull(new Error('the disk is short'));
  },
};

describe('blobs on a host', () => {
  const root = mkdtempSync(join(tmpdir(), 'sandbar-blobs-'));
  const objects = new Map<string, Buffer>();
  /** The ranges of all reads, and how the next reads go wrong: they send only so many bytes. */
  const ranges: string[] = [];
  const cuts: number[] = [];
  let ignoresRanges = false;
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const name = request.url ?? '';
    if (request.method === 'PUT') {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      objects.set(name, Buffer.concat(chunks));
      return response.end();
    }
    const object = objects.get(name);
    if (!object) return response.writeHead(404).end();
    ranges.push(request.headers.range ?? 'all');
    const from = ignoresRanges ? 0 : Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.writeHead(from > 0 ? 206 : 200, { 'content-length': object.length - from });
    const cut = cuts.shift();
    if (cut === undefined) return response.end(object.subarray(from));
    // The client has read what was sent before the connection breaks.
    response.write(object.subarray(from, from + cut), () => setTimeout(() => response.destroy(), 200));
  };
  const server = createServer((request, response) => void serve(request, response));
  let address = '';
  let blobs: BlobStore;
  let dir = '';
  before(async () => {
    await once(server.listen(0, '127.0.0.1'), 'listening');
    address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => {
    server.close();
    server.closeAllConnections();
    rmSync(root, { recursive: true });
  });
  beforeEach(() => {
    dir = mkdtempSync(join(root, 'host-'));
    blobs = new BlobStore(dir, room);
    ranges.splice(0);
    cuts.splice(0);
    ignoresRanges = false;
    room.isShort = false;
  });

  /** Uploads content in parts and returns what is stored. */
  const put = async (content: Buffer): Promise<{ digest: string; parts: (StoredPart & { url: string })[] }> => {
    const path = join(root, 'file');
    writeFileSync(path, content);
    const parts = [];
    for (let index = 0; index * PART_BYTES < content.length; index++) {
      const url = `${address}/${sha256(content)}/${index}`;
      parts.push({ url, ...(await uploadPart(path, index, url)) });
    }
    return { digest: sha256(content), parts };
  };
  const fetchAll = async ({ digest, parts }: Awaited<ReturnType<typeof put>>) => {
    for (const [index, part] of parts.entries()) await blobs.fetchPart(digest, index, part);
  };

  it('a blob of several parts arrives as it was, with its holes', async () => {
    const content = Buffer.concat([randomBytes(5000), Buffer.alloc(2 * PART_BYTES), randomBytes(777)]);
    const stored = await put(content);
    assert.equal(stored.parts.length, 3);
    await fetchAll(stored);
    await blobs.assemble(stored.digest, content.length);
    const path = blobs.pathOf(stored.digest);
    assert.ok(readFileSync(path).equals(content));
    assert.ok(statSync(path).blocks * 512 < 1024 * 1024, 'zeros take no space');
    assert.deepEqual(blobs.progress(stored.digest), { is_complete: true, parts: [] });
    assert.ok(!existsSync(`${path}.parts`));
  });

  it('a transfer that is cut goes on where it ended', async () => {
    const content = randomBytes(300_000);
    const stored = await put(content);
    cuts.push(100_000, 50_000);
    await fetchAll(stored);
    const [whole, ...rest] = ranges;
    assert.equal(whole, 'all');
    const begins = rest.map((range) => Number(/bytes=(\d+)-/.exec(range)?.[1]));
    assert.equal(begins.length, 2);
    assert.ok((begins[0] ?? 0) > 0 && (begins[1] ?? 0) > (begins[0] ?? 0), ranges.join());
    await blobs.assemble(stored.digest, content.length);
    assert.ok(readFileSync(blobs.pathOf(stored.digest)).equals(content));
  });

  it('a new agent goes on with what an earlier one has, and fetches no part again', async () => {
    const content = randomBytes(PART_BYTES + 100_000);
    const stored = await put(content);
    const [one, two] = stored.parts;
    assert.ok(one && two);
    await blobs.fetchPart(stored.digest, 0, one);
    cuts.push(20_000, 0, 0, 0);
    await assert.rejects(blobs.fetchPart(stored.digest, 1, two), { code: 'host_unavailable' });
    blobs = new BlobStore(dir, room);
    assert.deepEqual(blobs.progress(stored.digest), { is_complete: false, parts: [0] });
    ranges.splice(0);
    await fetchAll(stored);
    assert.equal(ranges.length, 1);
    assert.match(ranges[0] ?? '', /bytes=[1-9]/);
    await blobs.assemble(stored.digest, content.length);
    assert.ok(blobs.has(stored.digest));
  });

  it('a store that ignores ranges is read from the beginning', async () => {
    const content = randomBytes(300_000);
    const stored = await put(content);
    ignoresRanges = true;
    cuts.push(100_000);
    await fetchAll(stored);
    await blobs.assemble(stored.digest, content.length);
    assert.ok(blobs.has(stored.digest));
  });

  it('an object with another content, or a longer one, is never used (CTL-15)', async () => {
    const stored = await put(randomBytes(50_000));
    const name = `/${stored.digest}/0`;
    const genuine = objects.get(name) ?? assert.fail();
    const part = stored.parts[0] ?? assert.fail();
    const changed = Buffer.from(genuine);
    changed[100] = (changed[100] ?? 0) ^ 1;
    for (const wrong of [changed, Buffer.concat([genuine, Buffer.from('x')]), genuine.subarray(1)]) {
      objects.set(name, wrong);
      await assert.rejects(blobs.fetchPart(stored.digest, 0, part), { code: 'host_unavailable' });
      assert.deepEqual(blobs.progress(stored.digest).parts, []);
    }
    objects.set(name, genuine);
    await blobs.fetchPart(stored.digest, 0, part);
    assert.deepEqual(blobs.progress(stored.digest).parts, [0]);
  });

  it('parts that are valid and make another file are refused as a whole, and can be fetched again', async () => {
    const one = await put(randomBytes(1000));
    const two = await put(randomBytes(1000));
    await blobs.fetchPart(one.digest, 0, two.parts[0] ?? assert.fail());
    await assert.rejects(blobs.assemble(one.digest, 1000), { code: 'host_unavailable' });
    assert.deepEqual(blobs.progress(one.digest), { is_complete: false, parts: [] });
    await fetchAll(one);
    await blobs.assemble(one.digest, 1000);
    assert.ok(blobs.has(one.digest));
  });

  it('a blob with a missing part is refused, and an empty one has no parts', async () => {
    const stored = await put(randomBytes(1000));
    await assert.rejects(blobs.assemble(stored.digest, 1000), { code: 'conflict' });
    const empty = sha256(Buffer.alloc(0));
    await blobs.assemble(empty, 0);
    assert.equal(statSync(blobs.pathOf(empty)).size, 0);
  });

  it('parallel calls for a part share one transfer, and one for a blob that is there does nothing', async () => {
    const stored = await put(randomBytes(1000));
    const part = stored.parts[0] ?? assert.fail();
    await Promise.all([1, 2, 3].map(() => blobs.fetchPart(stored.digest, 0, part)));
    assert.equal(ranges.length, 1);
    await Promise.all([1, 2].map(() => blobs.assemble(stored.digest, 1000)));
    await blobs.fetchPart(stored.digest, 0, part);
    assert.equal(ranges.length, 1);
  });

  it('nothing is fetched while the disk is short', async () => {
    const stored = await put(randomBytes(1000));
    room.isShort = true;
    await assert.rejects(fetchAll(stored), { code: 'fleet_capacity' });
    assert.deepEqual(ranges, []);
  });

  it('what nobody uses is removed when it is old, and nothing else', async () => {
    const [used, unused, young] = [await put(randomBytes(10)), await put(randomBytes(10)), await put(randomBytes(10))];
    for (const stored of [used, unused, young]) {
      await fetchAll(stored);
      await blobs.assemble(stored.digest, 10);
    }
    const givenUp = await put(randomBytes(20));
    await fetchAll(givenUp);
    const past = new Date(Date.now() - 60_000);
    for (const path of [
      blobs.pathOf(used.digest),
      blobs.pathOf(unused.digest),
      `${blobs.pathOf(givenUp.digest)}.parts`,
    ])
      utimesSync(path, past, past);
    blobs.removeOld(30_000, (path) => path === blobs.pathOf(used.digest));
    assert.deepEqual(
      [used, unused, young].map(({ digest }) => blobs.has(digest)),
      [true, false, true],
    );
    assert.deepEqual(blobs.progress(givenUp.digest).parts, []);
  });
});
