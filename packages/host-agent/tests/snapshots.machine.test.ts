// Tests snapshots, restores and layers of machines on a fake hypervisor: refusals, failures, and which layers count as
// garbage. Kills of the agent are in snapshots.kills.test.ts, real machines in snapshots.qemu.test.ts.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { FakeHost, SPEC, until } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const OTHER = '019a0000-0000-7000-8000-00000000000b';
const VOLUME = '019a0000-0000-7000-8000-0000000000ff';
const STRAY = '019a0000-0000-7000-8000-0000000000ee';
const snapshotId = (number: number) => `019a0000-0000-7000-8000-0000000001${String(number).padStart(2, '0')}`;
const EMPTY_BYTES = 256 * 1024;

describe('snapshots on a host', () => {
  let host: FakeHost;
  const used: FakeHost[] = [];
  beforeEach(async () => {
    host = new FakeHost();
    used.push(host);
    await host.start();
  });
  after(() => {
    for (const one of used) one.remove();
  });
  const ensure = (
    id: string,
    generation: number,
    more: { desired?: 'running' | 'stopped'; restore?: string; spec?: object } = {},
  ) =>
    host.registry.ensure(id, {
      generation,
      desired: more.desired ?? 'running',
      spec: { ...SPEC, ...more.spec },
      ...(more.restore === undefined ? {} : { restore_snapshot_id: more.restore }),
    });
  const take = (number: number, generation = 1, id = ID) =>
    host.registry.takeSnapshot(id, snapshotId(number), { generation, memory: false });
  const vm = (id = ID) => host.hypervisor.running.get(id) ?? assert.fail('no VM');
  const recordPath = (id = ID) => join(host.paths.machines, id, 'machine.json');
  const record = (id = ID) => JSON.parse(readFileSync(recordPath(id), 'utf8'));
  const tailOf = (path: string) => readFileSync(path).subarray(EMPTY_BYTES).toString();
  const diskPath = (id = ID) => join(host.paths.machines, id, 'disk.qcow2');
  const diskText = (id = ID) =>
    [...record(id).layers.map((layer: string) => host.layers.pathOf(layer)), diskPath(id)].map(tailOf).join('');
  const layers = () => readdirSync(host.paths.layers);
  const status = (id = ID) => host.registry.get(id).report();

  describe('that cannot be taken', () => {
    const POINTS: FaultPoint[] = ['stageDisk', 'freeze', 'switchDisk'];
    for (const point of POINTS) {
      it(`a failure at ${point} is said, the machine writes on to the disk it had, and the next try works (CTL-2)`, async () => {
        await ensure(ID, 1);
        vm().write('a');
        host.hypervisor.faults.push(point);
        await assert.rejects(take(1), { code: 'host_unavailable' });
        assert.deepEqual(
          [vm().isFrozen, record().freezing, record().layers, host.snapshots.list()],
          [false, null, [], []],
        );
        assert.deepEqual(
          readdirSync(join(host.paths.machines, ID)).filter((name) => /next|partial/.test(name)),
          [],
        );
        vm().write('b');
        assert.equal(diskText(), 'ab');
        await take(1);
        vm().write('c');
        assert.equal(diskText(), 'abc');
        assert.deepEqual(await host.audit.look(), []);
      });
    }

    it('a guest that thawed by itself makes no snapshot: it is taken once more, and the chain only got longer (CLN-4)', async () => {
      await ensure(ID, 1);
      vm().write('a');
      const { switchDisk } = vm();
      let thawed = 0;
      vm().switchDisk = function (layerId: string) {
        if (thawed++ === 0) this.isFrozen = false;
        return switchDisk.call(this, layerId);
      };
      await take(1);
      assert.equal(thawed, 2);
      assert.ok(vm().wasFrozen);
      assert.equal(record().layers.length, 2);
      assert.deepEqual(host.snapshots.find(snapshotId(1))?.layers, record().layers);
      assert.equal(diskText(), 'a');
    });

    it('a guest that never stays frozen is refused, and loses nothing (CLN-4)', async () => {
      await ensure(ID, 1);
      vm().write('a');
      const { switchDisk } = vm();
      vm().switchDisk = function (layerId: string) {
        this.isFrozen = false;
        return switchDisk.call(this, layerId);
      };
      await assert.rejects(take(1), { code: 'host_unavailable' });
      vm().write('b');
      assert.deepEqual([diskText(), host.snapshots.list()], ['ab', []]);
    });

    it('a guest that a crashed agent left frozen is thawed first', async () => {
      await ensure(ID, 1);
      vm().isFrozen = true;
      await take(1);
      assert.equal(vm().isFrozen, false);
    });

    it('a full disk before, at and after the switch is fleet_capacity, the machine keeps writing, and the freeze is settled later', async () => {
      await ensure(ID, 1);
      vm().write('a');
      const full = new ServiceError('fleet_capacity', 'no room');
      const { add } = host.snapshots;
      host.snapshots.add = () => {
        throw full;
      };
      await assert.rejects(take(1), { code: 'fleet_capacity' });
      host.snapshots.add = add;
      const { stageDisk } = vm();
      vm().stageDisk = async () => Promise.reject(full);
      await assert.rejects(take(1), { code: 'fleet_capacity' });
      vm().stageDisk = stageDisk;
      // Writing the record fails after everything else is done.
      const { switchDisk } = vm();
      vm().switchDisk = async function (layerId: string) {
        await switchDisk.call(this, layerId);
        mkdirSync(`${recordPath()}.partial`);
      };
      await assert.rejects(take(1));
      vm().switchDisk = switchDisk;
      vm().write('b');
      rmSync(`${recordPath()}.partial`, { recursive: true, force: true });
      host.garbage.collect();
      await take(1);
      vm().write('c');
      assert.equal(diskText(), 'abc');
      assert.equal(
        host.snapshots
          .find(snapshotId(1))
          ?.layers.map((id) => tailOf(host.layers.pathOf(id)))
          .join(''),
        'ab',
      );
    });

    it('a destroy does not wait for a guest that never says that it is frozen (CTL-4)', async () => {
      await ensure(ID, 1);
      const release = host.hypervisor.hold('freeze');
      const taking = assert.rejects(take(1));
      await until('it is asked', () => host.hypervisor.passed.includes('freeze'));
      await host.registry.destroy(ID, 2);
      await taking;
      release();
      assert.deepEqual([[...host.hypervisor.running.keys()], host.snapshots.list()], [[], []]);
    });

    it('an older generation, an unknown machine and an id of another machine are refused', async () => {
      await ensure(ID, 3);
      await assert.rejects(take(1, 2), { code: 'conflict' });
      assert.throws(() => take(1, 3, OTHER), { code: 'not_found' });
      await take(1, 3);
      await ensure(OTHER, 1, { spec: { private_ip: '10.200.0.10' } });
      await assert.rejects(take(1, 1, OTHER), { code: 'conflict' });
    });
  });

  describe('restored', () => {
    it('an unknown snapshot, or a snapshot larger than the disk, is refused before anything is stopped', async () => {
      await ensure(ID, 1);
      const before = vm();
      await assert.rejects(ensure(ID, 2, { restore: snapshotId(9) }), { code: 'conflict' });
      await take(1);
      const path = join(host.paths.snapshots, snapshotId(1), 'snapshot.json');
      writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), size_gb: 2 }));
      await assert.rejects(ensure(ID, 2, { restore: snapshotId(1) }), { code: 'conflict' });
      assert.equal(vm(), before);
    });

    it('a restore of a running machine is refused on a full disk, and the machine runs on', async () => {
      await ensure(ID, 1);
      await take(1);
      const before = vm();
      host.room.isShort = true;
      await assert.rejects(ensure(ID, 2, { restore: snapshotId(1) }), { code: 'fleet_capacity' });
      assert.equal(vm(), before);
      host.room.isShort = false;
      await ensure(ID, 2, { restore: snapshotId(1) });
      assert.notEqual(vm(), before);
    });

    it('a restore leaves the replaced layers to the garbage collection and does not change the snapshot', async () => {
      await ensure(ID, 1);
      vm().write('a');
      await take(1);
      vm().write('b');
      await take(2);
      host.snapshots.remove(snapshotId(2));
      await ensure(ID, 2, { restore: snapshotId(1) });
      await until('the second layer is gone', () => layers().length === 1);
      assert.equal(diskText(), 'a');
      vm().write('c');
      assert.equal(tailOf(host.layers.pathOf(host.snapshots.find(snapshotId(1))?.layers[0] ?? '')), 'a');
    });
  });

  describe('garbage', () => {
    /** Makes a machine on two layers, a snapshot of the first layer, and a root volume on another layer. */
    const stock = async () => {
      await ensure(ID, 1);
      vm().write('a');
      await take(1);
      await take(2);
      host.snapshots.remove(snapshotId(2));
      await ensure(OTHER, 1, { spec: { private_ip: '10.200.0.10' } });
      await take(3, 1, OTHER);
      host.snapshots.remove(snapshotId(3));
      await host.registry.destroy(OTHER, 2, VOLUME);
      writeFileSync(host.layers.pathOf(STRAY), 'nobody has it');
      writeFileSync(join(host.paths.layers, 'half.partial'), '');
    };
    const needed = () =>
      [...record().layers, ...(host.volumes.find(VOLUME)?.layers ?? [])].map((id) => `${id}.qcow2`).sort();

    it('layers that nothing names are removed, layers of machines, snapshots, volumes and running freezes stay', async () => {
      await stock();
      const findings = (await host.audit.look()).map(({ subject }) => subject).sort();
      assert.deepEqual(
        findings,
        [join(host.paths.layers, `${STRAY}.qcow2`), join(host.paths.layers, 'half.partial')].sort(),
      );
      host.garbage.collect();
      assert.deepEqual(layers().sort(), needed());
      assert.equal(layers().length, 3);
      writeFileSync(host.layers.pathOf(STRAY), 'it is becoming one');
      writeFileSync(recordPath(), JSON.stringify({ ...record(), freezing: STRAY }));
      host.garbage.collect();
      assert.equal(layers().length, 4);
    });

    for (const what of ['machine', 'snapshot', 'volume'] as const) {
      it(`no layer is removed while the record of a ${what} cannot be read, and the audit says so`, async () => {
        await stock();
        const path = {
          machine: recordPath(),
          snapshot: join(host.paths.snapshots, snapshotId(1), 'snapshot.json'),
          volume: join(host.paths.volumes, VOLUME, 'volume.json'),
        }[what];
        const text = readFileSync(path);
        for (const broken of ['', '{"layers":']) {
          writeFileSync(path, broken);
          host.garbage.collect();
          assert.equal(layers().length, 5);
          const finding = (await host.audit.look()).find(({ subject }) => subject === 'layers');
          assert.equal(finding?.fixable, false);
        }
        writeFileSync(path, text);
        host.garbage.collect();
        assert.equal(layers().length, 3);
      });
    }

    it('a machine whose layer, disk or volume is missing is failed with a reason, gets no empty disk, and works once the file is back', async () => {
      await ensure(ID, 1);
      vm().write('a');
      await take(1);
      await ensure(ID, 2, { desired: 'stopped' });
      const layer = host.layers.pathOf(record().layers[0]);
      for (const path of [layer, diskPath()]) {
        renameSync(path, `${path}.away`);
        await host.start();
        assert.equal(status().status, 'failed');
        assert.match(status().reason ?? '', /missing/);
        await assert.rejects(ensure(ID, 2), { code: 'host_unavailable', message: /missing/ });
        await assert.rejects(take(5, 2), { code: 'host_unavailable' });
        await assert.rejects(host.registry.destroy(ID, 2, VOLUME), { code: 'not_found' });
        assert.deepEqual([status().status, existsSync(path)], ['failed', false]);
        if (path === layer) assert.deepEqual(host.snapshots.list(), []);
        renameSync(`${path}.away`, path);
        await host.start();
      }
      await ensure(ID, 2);
      assert.equal(diskText(), 'a');
    });

    it('a snapshot whose layer is missing is not listed and reported by the audit', async () => {
      await ensure(ID, 1);
      await take(1);
      rmSync(host.layers.pathOf(record().layers[0]));
      assert.deepEqual(host.snapshots.list(), []);
      const [finding] = await host.audit.look();
      assert.deepEqual([finding?.subject, finding?.fixable], [join(host.paths.snapshots, snapshotId(1)), false]);
      await assert.rejects(ensure(OTHER, 1, { spec: { snapshot_id: snapshotId(1), private_ip: '10.200.0.10' } }), {
        code: 'conflict',
      });
    });
  });

  it('after a crash destroyed a record, a disk directly on its image is used, a disk on layers is not', async () => {
    await ensure(ID, 1);
    writeFileSync(recordPath(), '');
    host.hypervisor.running.clear();
    await host.start();
    await ensure(ID, 2);
    vm().write('a');
    await take(1, 2);
    host.hypervisor.running.clear();
    writeFileSync(recordPath(), '');
    await host.start();
    await assert.rejects(ensure(ID, 3), { code: 'host_unavailable', message: /record .* lost/ });
    assert.ok(existsSync(diskPath()));
  });

  it('a root volume that cannot be claimed stays unchanged, and no machine is made', async () => {
    await ensure(ID, 1);
    vm().write('a');
    await host.registry.destroy(ID, 2, VOLUME);
    const { take: takeVolume } = host.volumes;
    host.volumes.take = () => {
      throw new Error('no');
    };
    await assert.rejects(ensure(OTHER, 1, { spec: { root_volume_id: VOLUME } }), /no/);
    host.volumes.take = takeVolume;
    assert.deepEqual([host.volumes.list().length, existsSync(join(host.paths.machines, OTHER))], [1, false]);
    await ensure(OTHER, 1, { spec: { root_volume_id: VOLUME }, desired: 'stopped' });
    await assert.rejects(ensure(ID, 3, { spec: { root_volume_id: VOLUME } }), { code: 'conflict' });
    await host.registry.destroy(OTHER, 2, VOLUME);
    assert.equal(tailOf(join(host.paths.volumes, VOLUME, 'disk.qcow2')), 'a');
  });

  it('a root volume given back before its machine ran keeps its size', async () => {
    await ensure(ID, 1);
    await host.registry.destroy(ID, 2, VOLUME);
    const [before] = host.volumes.list();
    const spec = { root_volume_id: VOLUME, rootfs_size_gb: (before?.size_gb ?? 0) + 3 };
    await ensure(OTHER, 1, { spec, desired: 'stopped' });
    await host.registry.destroy(OTHER, 2, VOLUME);
    assert.deepEqual(host.volumes.list(), [before]);
  });

  describe('a chain of more than eight layers', () => {
    const longChain = async () => {
      await ensure(ID, 1);
      for (let number = 1; number <= 9; number++) await take(number);
      await until('it is being copied', () => vm().endFlatten !== undefined);
    };

    it('is copied into the disk and then no longer recorded', async () => {
      await longChain();
      for (let number = 1; number <= 9; number++) host.snapshots.remove(snapshotId(number));
      host.garbage.collect();
      assert.equal(layers().length, 9);
      vm().endFlatten?.(true);
      await until('it is flat', () => record().layers.length === 0);
      await until('its layers are gone', () => layers().length === 0);
    });

    it('stops its copy for a snapshot, a stop and a new agent, and restarts it', async () => {
      await longChain();
      await take(10);
      assert.equal(record().layers.length, 10);
      const passes = () => host.hypervisor.passed.filter((point) => point === 'flattenDisk').length;
      assert.equal(passes(), 2);
      await host.start();
      await until('it is being copied again', () => passes() === 3);
      await ensure(ID, 2, { desired: 'stopped' });
      assert.equal(record().layers.length, 10);
      await ensure(ID, 3);
      await until('it is being copied again', () => passes() === 4);
      vm().endFlatten?.(true);
      await until('it is flat', () => record().layers.length === 0);
    });

    it('whose copy completes during a snapshot keeps its content', async () => {
      await longChain();
      vm().stopFlatten = async function () {
        this.endFlatten?.(true);
      };
      await take(10);
      assert.equal(record().layers.length, 1);
    });
  });
});
