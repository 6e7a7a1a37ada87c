// Tests that the snapshots of a stopped machine go with it from host to host, with real files.
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { readMachineRecord } from '../src/machines/record.ts';
import { changed, sha256Of, startHost, streamOf } from './support/copied-host.ts';
import { type FakeHost, SPEC } from './support/fake-host.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const CLONE = '019a0000-0000-7000-8000-00000000000b';
const [FIRST, SECOND, MEMORY] = ['1', '2', '3'].map((digit) => `019a0000-0000-7000-8000-00000000010${digit}`) as [
  string,
  string,
  string,
];
/** Size of the disks of the fake hypervisor before their guests write. */
const EMPTY_BYTES = 256 * 1024;

describe('the snapshots of a machine that moves', () => {
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
  const ensure = (host: FakeHost, generation: number, desired: 'running' | 'stopped', restore?: string) =>
    host.registry.ensure(ID, {
      ...{ generation, desired, spec: SPEC },
      ...(restore === undefined ? {} : { restore_snapshot_id: restore }),
    });
  const write = (text: string) => (from.hypervisor.running.get(ID) ?? assert.fail('no VM')).write(text);
  const textOf = (host: FakeHost, layers: readonly string[], disk?: string) =>
    [...layers.map((layer) => host.layers.pathOf(layer)), ...(disk === undefined ? [] : [disk])]
      .map((file) => readFileSync(file).subarray(EMPTY_BYTES).toString())
      .join('');
  const machineText = (host: FakeHost) => {
    const dir = join(host.paths.machines, ID);
    return textOf(host, readMachineRecord(dir)?.layers ?? [], join(dir, 'disk.qcow2'));
  };
  const snapshotText = (host: FakeHost, id: string) => textOf(host, host.snapshots.find(id)?.layers ?? []);
  const send = () => from.machineCopies.send(ID);
  const receive = async (generation: number, stream: AsyncIterable<Buffer>) => {
    const source = streamOf(stream);
    return to.machineCopies.receive(ID, generation, source).finally(() => source.destroy());
  };
  const filesOf = (host: FakeHost) =>
    ['machines', 'snapshots', 'layers'].map((folder) => readdirSync(join(host.dir, folder)));
  const isCode =
    (code: string, text = '') =>
    (error: unknown) =>
      error instanceof ServiceError && error.code === code && error.message.includes(text);

  /** A stopped machine with the disk `ac`, and snapshots `a` and `ab`. The layer with `b` belongs to a snapshot only. */
  async function makeWithSnapshots(): Promise<void> {
    await ensure(from, 1, 'running');
    write('a');
    await from.registry.takeSnapshot(ID, FIRST, { generation: 1, memory: false });
    write('b');
    await from.registry.takeSnapshot(ID, SECOND, { generation: 1, memory: false });
    await ensure(from, 2, 'running', FIRST);
    write('c');
    await ensure(from, 3, 'stopped');
    assert.equal(machineText(from), 'ac');
  }
  /** A stopped machine with a memory snapshot. */
  async function makeWithMemory(): Promise<void> {
    await ensure(from, 1, 'running');
    write('a');
    await from.registry.takeSnapshot(ID, MEMORY, { generation: 1, memory: true });
    await ensure(from, 2, 'stopped');
  }

  it('are on the new host only, where the machine is restored and others are made from them', async () => {
    await makeWithSnapshots();
    const listed = from.snapshots.list();
    const received = await receive(4, await send());
    assert.deepEqual(received.snapshot_ids.toSorted(), [FIRST, SECOND]);
    assert.deepEqual((await receive(4, await send())).snapshot_ids.toSorted(), [FIRST, SECOND], 'a repetition');
    await from.machineCopies.remove(ID, 4, { withSnapshots: true });
    from.garbage.collect();
    assert.deepEqual(filesOf(from), [[], [], []]);

    await to.start();
    assert.deepEqual(to.snapshots.list(), listed);
    assert.equal(machineText(to), 'ac');
    assert.deepEqual([snapshotText(to, FIRST), snapshotText(to, SECOND)], ['a', 'ab']);
    assert.deepEqual(await to.audit.look(), []);
    await ensure(to, 5, 'stopped', SECOND);
    assert.equal(textOf(to, readMachineRecord(join(to.paths.machines, ID))?.layers ?? []), 'ab');
    const { private_ip: _, ...spec } = SPEC;
    await to.registry.ensure(CLONE, { generation: 1, desired: 'running', spec: { ...spec, snapshot_id: FIRST } });
  });

  it('with memory keep every byte of it', async () => {
    await makeWithMemory();
    const sums = (host: FakeHost) =>
      ['memory', 'state'].map((name) => sha256Of(join(host.paths.snapshots, MEMORY, name)));
    const before = sums(from);
    await receive(3, await send());
    assert.deepEqual(sums(to), before);
    assert.deepEqual(to.snapshots.find(MEMORY)?.memory, from.snapshots.find(MEMORY)?.memory);
  });

  it('with memory keep their machine from a host that could not resume it', async () => {
    await makeWithMemory();
    to.hypervisor.qemu = '9.0';
    await assert.rejects(receive(3, await send()), isCode('conflict', 'needs QEMU 7.2'));
    assert.deepEqual(filesOf(to), [[], [], []]);
  });

  it('that were cut off or damaged leave nothing, and can be sent again (CTL-14)', async () => {
    await makeWithMemory();
    let count = 0;
    for await (const _ of await send()) count++;
    for (let at = 1; at < count; at++) {
      const cut = changed(await send(), (piece, index) => (index === at ? undefined : piece));
      await assert.rejects(receive(3, cut), isCode('host_unavailable'), `cut off at piece ${at}`);
      assert.deepEqual(filesOf(to), [[], [], []]);
    }
    assert.deepEqual((await receive(3, await send())).snapshot_ids, [MEMORY]);
  });

  for (const next of ['the next attempt', 'the removal of the copy'] as const) {
    it(`are left by a crash before the record of their machine, and ${next} deletes them (CTL-14)`, async () => {
      await makeWithSnapshots();
      await receive(4, await send());
      rmSync(join(to.paths.machines, ID, 'machine.json'));
      await to.start();
      assert.equal(to.registry.has(ID), false);
      assert.equal(to.snapshots.list().length, 2);
      if (next === 'the next attempt') {
        await from.registry.get(ID).takeSnapshot(MEMORY, { generation: 3, memory: false });
        from.snapshots.remove(SECOND);
        const received = await receive(4, await send());
        assert.deepEqual(received.snapshot_ids.toSorted(), [FIRST, MEMORY]);
        assert.deepEqual(to.snapshots.ids().toSorted(), [FIRST, MEMORY]);
      } else {
        await to.machineCopies.remove(ID, 4, { withSnapshots: true });
        to.garbage.collect();
        assert.deepEqual(filesOf(to), [[], [], []]);
      }
    });
  }

  it('survive a late removal of an earlier copy, and a removal of the machine alone', async () => {
    await makeWithSnapshots();
    await receive(5, await send());
    await assert.rejects(to.machineCopies.remove(ID, 4, { withSnapshots: true }), isCode('conflict'));
    assert.equal(to.snapshots.list().length, 2);
    await to.machineCopies.remove(ID, 5);
    assert.equal(to.snapshots.list().length, 2);
  });

  it('of another machine with the same id are not replaced', async () => {
    await makeWithSnapshots();
    mkdirSync(join(to.paths.snapshots, FIRST));
    await assert.rejects(receive(4, await send()), isCode('conflict', 'already'));
    assert.deepEqual(filesOf(to), [[], [FIRST], []]);
  });

  it('leave a copy from the object store in use on the new host until they have arrived', async () => {
    await makeWithMemory();
    const { memory, ...record } = from.snapshots.find(MEMORY) ?? assert.fail('no snapshot');
    assert(memory);
    to.snapshots.addCopy(MEMORY, { ...record, layers: [], kind: 'disk' }, () => undefined);
    const seen: { hasFolder: boolean; kind: string | undefined; listed: number }[] = [];
    const watched = changed(await send(), (piece) => {
      const hasFolder = to.snapshots.hasOwn(MEMORY);
      seen.push({ hasFolder, kind: to.snapshots.find(MEMORY)?.kind, listed: to.snapshots.list().length });
      return piece;
    });
    await receive(3, watched);
    const during = seen.filter(({ hasFolder }) => hasFolder);
    assert(during.length > 0, 'the stream was watched while the snapshot arrived');
    for (const one of during) assert.deepEqual(one, { hasFolder: true, kind: 'disk', listed: 0 });
    assert.equal(to.snapshots.find(MEMORY)?.kind, 'memory');
  });

  it('stay when the new host forgets its copies from the object store', async () => {
    await makeWithMemory();
    const { memory, ...record } = from.snapshots.find(MEMORY) ?? assert.fail('no snapshot');
    assert(memory);
    to.snapshots.addCopy(MEMORY, { ...record, kind: 'disk' }, () => undefined);
    await receive(3, await send());
    assert.equal(to.snapshots.dirOf(MEMORY), join(to.paths.snapshots, MEMORY));
    to.snapshots.removeCopy(MEMORY);
    assert.equal(to.snapshots.find(MEMORY)?.kind, 'memory');
  });
});
