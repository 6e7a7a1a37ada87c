// Tests kept root disks: whatever happens between the steps of a delete that keeps the disk, one disk remains in one
// place.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { type FakeHost, SPEC } from './support/fake-host.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const OTHER = '019a0000-0000-7000-8000-00000000000b';
const VOLUME = '019a0000-0000-7000-8000-0000000000ff';
const running = (generation: number) => ({ generation, desired: 'running' as const, spec: SPEC });

describe('a delete that keeps the root disk', () => {
  let host: FakeHost;
  const newHost = makeHosts();
  beforeEach(async () => {
    host = newHost();
    await host.start();
  });
  const machineDir = (id = ID) => join(host.dir, 'machines', id);
  const disk = (id = ID) => join(machineDir(id), 'disk.qcow2');
  const kept = (id = VOLUME) => join(host.dir, 'volumes', id, 'disk.qcow2');
  const record = (id = VOLUME) => JSON.parse(readFileSync(join(host.dir, 'volumes', id, 'volume.json'), 'utf8'));
  const LISTED = [{ volume_id: VOLUME, size_gb: 1, kind: 'root' }];

  /** Starts a machine whose disk has unique content, and returns that content. */
  const startWithDisk = async (): Promise<Buffer> => {
    await host.registry.ensure(ID, running(1));
    const bytes = Buffer.concat([readFileSync(disk()), Buffer.from('what the guest wrote')]);
    writeFileSync(disk(), bytes);
    return bytes;
  };
  const assertKept = (bytes: Buffer) => {
    assert.deepEqual(host.volumes.list(), LISTED);
    assert.ok(readFileSync(kept()).equals(bytes), 'the disk is the one that the machine had');
    assert.ok(!existsSync(machineDir()), 'nothing else of the machine is left');
    assert.deepEqual(readdirSync(join(host.dir, 'volumes')), [VOLUME]);
  };

  it('moves the disk and records the facts that a later boot needs', async () => {
    const bytes = await startWithDisk();
    await host.registry.destroy(ID, 2, VOLUME);
    assertKept(bytes);
    assert.equal(host.hypervisor.running.size, 0);
    const rootfsPath = join(host.dir, 'rootfs.img');
    assert.deepEqual(record(), {
      kind: 'root',
      size_gb: 1,
      machine_id: ID,
      stack: 'base',
      image: { kernelPath: '/kernel', initramfsPath: '/initramfs', rootfsPath },
      layers: [],
    });
    await host.start();
    assertKept(bytes);
  });

  it('may be repeated, in parallel and later, by the same agent and the next', async () => {
    const bytes = await startWithDisk();
    await Promise.all([host.registry.destroy(ID, 2, VOLUME), host.registry.destroy(ID, 2, VOLUME)]);
    await host.registry.destroy(ID, 2, VOLUME);
    assertKept(bytes);
    await host.start();
    await host.registry.destroy(ID, 2, VOLUME);
    assertKept(bytes);
  });

  it('lets the guest power off before it moves the disk', { timeout: 5000 }, async () => {
    await startWithDisk();
    const vm = host.hypervisor.running.get(ID);
    assert.ok(vm?.session);
    let wasThere = false;
    vm.session.powerOff = async () => {
      wasThere = existsSync(disk());
      vm.exitByItself({ cause: 'powered-off', reason: 'powered off' });
    };
    await host.registry.destroy(ID, 2, VOLUME);
    assert.ok(wasThere, 'the guest was asked while its disk was in place');
    assert.ok(existsSync(kept()));
  });

  it('waits for a running graceful stop instead of interrupting it', { timeout: 5000 }, async () => {
    await startWithDisk();
    const vm = host.hypervisor.running.get(ID);
    assert.ok(vm?.session);
    const asked = Promise.withResolvers<void>();
    vm.session.powerOff = async () => asked.resolve();
    const stop = host.registry.ensure(ID, { ...running(2), desired: 'stopped' });
    await asked.promise;
    const destroy = host.registry.destroy(ID, 3, VOLUME);
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(host.hypervisor.running.has(ID), 'the guest is still at it');
    vm.exitByItself({ cause: 'powered-off', reason: 'powered off' });
    await Promise.all([stop, destroy]);
    assert.ok(existsSync(kept()));
  });

  it('keeps the empty disk of a machine that never ran', async () => {
    await host.registry.ensure(ID, { ...running(1), desired: 'stopped' });
    await host.registry.destroy(ID, 2, VOLUME);
    assert.deepEqual(host.volumes.list(), LISTED);
  });

  it('of a missing machine reports that, and a plain delete keeps nothing', async () => {
    await assert.rejects(host.registry.destroy(ID, 2, VOLUME), { code: 'not_found' });
    await startWithDiskOf(OTHER);
    await host.registry.destroy(OTHER, 2);
    assert.deepEqual(host.volumes.list(), []);
    assert.deepEqual(readdirSync(join(host.dir, 'volumes')), []);
  });
  const startWithDiskOf = (id: string) => host.registry.ensure(id, running(1));

  describe('after a crash', () => {
    const prepared = async () => {
      const bytes = await startWithDisk();
      await host.registry.ensure(ID, { ...running(2), desired: 'stopped' });
      return bytes;
    };
    /** States that a crash between two steps leaves. Repeating the call must complete each of them. */
    const STEPS: Record<string, () => void> = {
      'before anything': () => {},
      'with the folder made': () => mkdirSync(join(host.dir, 'volumes', VOLUME)),
      'with half a record': () => {
        mkdirSync(join(host.dir, 'volumes', VOLUME));
        writeFileSync(join(host.dir, 'volumes', VOLUME, 'volume.json'), '{"kind"');
      },
    };
    for (const [point, make] of Object.entries(STEPS)) {
      it(`${point}: the disk is still the machine's, then the volume's`, async () => {
        const bytes = await prepared();
        make();
        await host.start();
        assert.deepEqual([host.volumes.list(), existsSync(disk())], [[], true]);
        await host.registry.destroy(ID, 3, VOLUME);
        assertKept(bytes);
      });
    }

    it('with the disk moved and the machine not removed: no second disk is made, and a repeated call completes the delete', async () => {
      const bytes = await prepared();
      const machine = readFileSync(join(machineDir(), 'machine.json'), 'utf8');
      await host.registry.destroy(ID, 3, VOLUME);
      mkdirSync(machineDir());
      // Restore the state that a crash after the move leaves: `machine.json` already has generation 3, because the
      // agent records the generation before it moves the disk.
      writeFileSync(join(machineDir(), 'machine.json'), JSON.stringify({ ...JSON.parse(machine), generation: 3 }));
      await host.start();
      await assert.rejects(host.registry.ensure(ID, running(2)), { code: 'conflict' });
      await host.registry.destroy(ID, 3, VOLUME);
      assertKept(bytes);
    });

    it("that destroyed the machine's record: the disk is kept anyway", async () => {
      const bytes = await prepared();
      writeFileSync(join(machineDir(), 'machine.json'), '');
      await host.start();
      await host.registry.destroy(ID, 3, VOLUME);
      assertKept(bytes);
      assert.deepEqual([record().stack, record().image], [null, null]);
    });
  });

  it('the generation is on disk before the disk is moved', async () => {
    await startWithDisk();
    const { volumes } = host;
    const keep = volumes.keep.bind(volumes);
    let generation = 0;
    volumes.keep = (...args) => {
      generation = JSON.parse(readFileSync(join(machineDir(), 'machine.json'), 'utf8')).generation;
      return keep(...args);
    };
    await host.registry.destroy(ID, 2, VOLUME);
    assert.equal(generation, 2);
  });

  it('that fails leaves the disk in place for the next call', async () => {
    const bytes = await startWithDisk();
    const { volumes } = host;
    const { keep } = volumes;
    volumes.keep = () => Promise.reject(new Error('no'));
    await assert.rejects(host.registry.destroy(ID, 2, VOLUME), /no/);
    assert.ok(existsSync(disk()));
    volumes.keep = keep;
    await host.registry.destroy(ID, 2, VOLUME);
    assertKept(bytes);
  });

  it('never replaces another machine’s disk', async () => {
    const bytes = await startWithDisk();
    await host.registry.destroy(ID, 2, VOLUME);
    await startWithDiskOf(OTHER);
    await assert.rejects(host.registry.destroy(OTHER, 2, VOLUME), { code: 'conflict' });
    assert.ok(existsSync(disk(OTHER)));
    assertKept(bytes);
  });

  it('a volume is deleted, also on a repeated call, and a damaged record hides no other volume', async () => {
    await startWithDisk();
    await host.registry.destroy(ID, 2, VOLUME);
    const damaged = OTHER;
    mkdirSync(join(host.dir, 'volumes', damaged));
    writeFileSync(join(host.dir, 'volumes', damaged, 'volume.json'), '');
    writeFileSync(kept(damaged), '');
    assert.deepEqual(host.volumes.list(), LISTED);
    await host.volumes.remove(damaged);
    await host.volumes.remove(VOLUME);
    await host.volumes.remove(VOLUME);
    assert.deepEqual(readdirSync(join(host.dir, 'volumes')), []);
  });
});
