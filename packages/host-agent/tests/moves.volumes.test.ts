// Tests copies of volumes from host to host, with real files: the content arrives whole or not at all, and late calls
// of earlier moves do no harm.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sumOfSparseFile } from '../src/storage/sparse-file.ts';
import { changed, sha256Of, startHost, streamOf } from './support/copied-host.ts';
import type { FakeHost } from './support/fake-host.ts';
import { until } from './support/fake-host.ts';

const ID = '019a0000-0000-7000-8000-0000000000d1';
const MACHINE = '019a0000-0000-7000-8000-00000000000a';
const LAYER = '019a0000-0000-7000-8000-0000000000e1';
const GIB = 1024 ** 3;

describe('a copy of a volume', () => {
  let from: FakeHost;
  let to: FakeHost;
  const used: FakeHost[] = [];
  beforeEach(async () => {
    from = await startHost(used);
    to = await startHost(used);
  });
  after(() => {
    for (const one of used) one.remove();
  });
  const data = (host: FakeHost) => join(host.dir, 'volumes', ID, 'data.raw');
  const isCode = (code: string) => (error: unknown) => error instanceof ServiceError && error.code === code;
  const assertNothing = (host: FakeHost) => assert.deepEqual(readdirSync(join(host.dir, 'volumes')), []);
  /** Makes a volume with three separate parts of data, one of them at its end. */
  const makeVolume = async () => {
    await from.dataVolumes.ensure(ID, 1);
    await from.dataVolumes.take(ID, MACHINE);
    from.dataVolumes.giveBack(ID, MACHINE);
    const file = await open(data(from), 'r+');
    for (const [offset, byte] of [
      [3_000_000, 1],
      [600_000_000, 2],
      [GIB - 5_000, 3],
    ] as const)
      await file.write(Buffer.alloc(5_000, byte), 0, 5_000, offset);
    await file.close();
  };
  const send = (host = from) => host.volumeCopies.send(ID);
  const receive = async (generation: number, stream: AsyncIterable<Buffer>) =>
    to.volumeCopies.receive(ID, generation, streamOf(stream));

  it('has the same content and the same holes, and is formatted already', async () => {
    await makeVolume();
    const report = await receive(2, await send());
    assert.deepEqual(report, { volume_id: ID, size_gb: 1, kind: 'data' });
    assert.equal(sha256Of(data(to)), sha256Of(data(from)));
    assert.ok(statSync(data(to)).blocks <= statSync(data(from)).blocks + 64, 'holes are not written');
    const record = JSON.parse(readFileSync(join(to.dir, 'volumes', ID, 'volume.json'), 'utf8'));
    assert.deepEqual(record, { kind: 'data', size_gb: 1, formatted: true, generation: 2 });
    await to.start();
    assert.deepEqual(to.dataVolumes.list(), [report]);
  });

  it('is sent without its holes', async () => {
    await makeVolume();
    let bytes = 0;
    for await (const piece of await send()) bytes += piece.length;
    assert.ok(bytes < 40_000_000, `${bytes} bytes of a volume of 1 GiB`);
  });

  it('that was damaged, cut off or goes on after its end is refused, and leaves nothing (CTL-14)', async () => {
    await makeVolume();
    let count = 0;
    for await (const _ of await send()) count++;
    const flip = (piece: Buffer) => {
      const copy = Buffer.from(piece);
      copy[copy.length - 1] = (copy.at(-1) ?? 0) ^ 1;
      return copy;
    };
    for (let at = 1; at < count; at++) {
      const damaged = changed(await send(), (piece, index) => (index === at ? flip(piece) : piece));
      await assert.rejects(receive(2, damaged), (error) => error instanceof ServiceError, `piece ${at} damaged`);
      const cut = changed(await send(), (piece, index) => (index === at ? undefined : piece));
      await assert.rejects(receive(2, cut), isCode('host_unavailable'), `cut off at piece ${at}`);
      assertNothing(to);
    }
    const longer = changed(await send(), (piece, index) =>
      index === count - 1 ? Buffer.concat([piece, piece]) : piece,
    );
    await assert.rejects(receive(2, longer), isCode('host_unavailable'));
    assertNothing(to);
    assert.equal((await receive(2, await send())).size_gb, 1);
  });

  it('that is begun again and again is there once; an older one is refused, a newer one replaces it', async () => {
    await makeVolume();
    await Promise.allSettled([receive(2, await send()), receive(2, await send())]);
    await receive(2, await send());
    const { ino } = statSync(data(to));
    await receive(2, await send());
    assert.equal(statSync(data(to)).ino, ino, 'a repetition writes nothing');
    await assert.rejects(receive(1, await send()), isCode('conflict'));
    await receive(3, await send());
    assert.equal(await sumOfSparseFile(data(to), GIB), await sumOfSparseFile(data(from), GIB));
  });

  it('a removal ends the copy of its generation, and a later call does not bring it back', async () => {
    await makeVolume();
    async function* stuck(): AsyncGenerator<Buffer> {
      let index = 0;
      for await (const piece of await send()) {
        yield piece;
        if (index++ === 3) await new Promise(() => {});
      }
    }
    const receiving = assert.rejects(receive(2, stuck()));
    await until('it has begun', () => existsSync(`${data(to)}.partial`));
    await to.volumeCopies.remove(ID, 2);
    await receiving;
    assertNothing(to);
    await assert.rejects(receive(2, await send()), isCode('conflict'));
    await receive(3, await send());
    await to.volumeCopies.remove(ID, 2);
    assert.ok(to.dataVolumes.has(ID), 'a late removal of an earlier copy');
    await to.volumeCopies.remove(ID);
    assertNothing(to);
  });

  it('breaks off when a machine takes the volume meanwhile, and is refused while one has it', async () => {
    await makeVolume();
    const stream = await send();
    const receiving = receive(
      2,
      changed(stream, (piece, index) => {
        if (index === 4) from.dataVolumes.takeAgain(ID, MACHINE);
        return piece;
      }),
    );
    await assert.rejects(receiving, isCode('host_unavailable'));
    assertNothing(to);
    await assert.rejects(send(), isCode('conflict'));
  });

  it('is refused on a short disk, also in the middle', async () => {
    await makeVolume();
    to.room.isShort = true;
    await assert.rejects(receive(2, await send()), isCode('fleet_capacity'));
    to.room.isShort = false;
    const filling = changed(await send(), (piece, index) => {
      to.room.isShort = index > 3;
      return piece;
    });
    await assert.rejects(receive(2, filling), isCode('fleet_capacity'));
    assertNothing(to);
  });

  it('that an agent had not received whole is gone when the next one starts', async () => {
    await makeVolume();
    async function* stuck(): AsyncGenerator<Buffer> {
      let index = 0;
      for await (const piece of await send()) {
        yield piece;
        if (index++ === 3) await new Promise(() => {});
      }
    }
    receive(2, stuck()).catch(() => {});
    await until('it has begun', () => existsSync(`${data(to)}.partial`));
    await to.start();
    assertNothing(to);
    assert.equal((await to.volumeCopies.receive(ID, 2, streamOf(await send()))).size_gb, 1);
  });

  describe('that is a root disk', () => {
    const disk = (host: FakeHost) => join(host.dir, 'volumes', ID, 'disk.qcow2');
    const keepDisk = async () => {
      const machineDisk = join(from.dir, 'kept.qcow2');
      writeFileSync(machineDisk, Buffer.alloc(3_000_000, 7));
      const layer = join(from.dir, 'layer.qcow2');
      writeFileSync(layer, Buffer.alloc(2_000_000, 8));
      from.layers.add(LAYER, layer);
      await from.volumes.keep(ID, machineDisk, {
        ...{ kind: 'root', size_gb: 1, machine_id: MACHINE, stack: 'base', layers: [LAYER] },
        image: { kernelPath: '/kernel', initramfsPath: '/initramfs', rootfsPath: join(from.dir, 'rootfs.img') },
      });
    };

    it('comes with its layers, on the image of its new host', async () => {
      await keepDisk();
      assert.deepEqual(await receive(2, await send()), { volume_id: ID, size_gb: 1, kind: 'root' });
      assert.equal(sha256Of(disk(to)), sha256Of(disk(from)));
      assert.equal(sha256Of(to.layers.pathOf(LAYER)), sha256Of(from.layers.pathOf(LAYER)));
      assert.equal(to.volumes.find(ID)?.image?.rootfsPath, join(to.dir, 'rootfs.img'));
      to.garbage.collect();
      assert.ok(to.layers.has(LAYER), 'the record names the layer');
      await to.volumeCopies.remove(ID, 2);
      to.garbage.collect();
      assert.ok(!to.layers.has(LAYER));
    });

    it('is refused by a host whose image of that name has other bytes', async () => {
      await keepDisk();
      to = await startHost(used, Buffer.alloc(1024 * 1024, 9));
      await assert.rejects(receive(2, await send()), isCode('conflict'));
      assertNothing(to);
      assert.ok(!to.layers.has(LAYER));
    });
  });
});
