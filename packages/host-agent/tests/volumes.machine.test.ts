// Tests data volumes of machines on a fake hypervisor with real files: all orders and failures of plugging and
// unplugging, and an agent that dies between any two steps.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import { FakeHost, SPEC, until } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';
import type { FakeVm } from './support/fake-vm.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const OTHER = '019a0000-0000-7000-8000-00000000000b';
const [ONE, TWO, THREE] = ['d1', 'd2', 'd3'].map((end) => `019a0000-0000-7000-8000-0000000000${end}`) as [
  string,
  string,
  string,
];
const at = (volume_id: string, mount_path: string): MachineVolume => ({ volume_id, mount_path });
const refusal = (code: string, text: RegExp) => (error: { code?: string; message: string }) =>
  error.code === code && text.test(error.message);

describe('volumes of a machine', () => {
  let host: FakeHost;
  let generation = 0;
  const used: FakeHost[] = [];
  const newHost = async () => {
    host = new FakeHost();
    used.push(host);
    generation = 0;
    await host.start();
    for (const id of [ONE, TWO, THREE]) await host.dataVolumes.ensure(id, 5);
  };
  beforeEach(newHost);
  after(() => {
    for (const one of used) one.remove();
  });

  const ensure = (desired: 'running' | 'stopped', volumes: MachineVolume[], id = ID) => {
    const private_ip = id === ID ? '10.200.0.9' : '10.200.0.10';
    return host.registry.ensure(id, { generation: ++generation, desired, spec: { ...SPEC, private_ip }, volumes });
  };
  const run = (volumes: MachineVolume[], id = ID) => ensure('running', volumes, id);
  const stop = (volumes: MachineVolume[], id = ID) => ensure('stopped', volumes, id);
  const vm = (id = ID): FakeVm => host.hypervisor.running.get(id) ?? assert.fail('no VM');
  const mounts = (id = ID) => Object.fromEntries([...vm(id).mounts.values()].map((one) => [one.volumeId, one.path]));
  const recorded = (id = ID): { volumeId: string; path: string; isMounted: boolean }[] =>
    JSON.parse(readFileSync(join(host.dir, 'machines', id, 'machine.json'), 'utf8')).volumes;
  const isTrue = () => recorded().every((one) => !one.isMounted || mounts()[one.volumeId] === one.path);
  const users = () => [ONE, TWO, THREE].map((id) => host.dataVolumes.userOf(id));
  /** Checks that the machine has exactly the `wanted` volumes recorded, plugged, mounted and marked as used. */
  const check = (wanted: Record<string, string>, id = ID) => {
    assert.deepEqual(mounts(id), wanted);
    assert.deepEqual([...vm(id).plugged.values()].map(({ serial }) => serial).sort(), Object.keys(wanted).sort());
    assert.deepEqual(Object.fromEntries(recorded(id).map((one) => [one.volumeId, one.path])), wanted);
    assert.ok(recorded(id).every(({ isMounted }) => isMounted));
    for (const volume of [ONE, TWO, THREE])
      assert.equal(host.dataVolumes.userOf(volume) === id, volume in wanted, `${volume} is the machine's`);
    assert.deepEqual(host.hypervisor.violations, []);
  };

  it('are attached and detached while it runs, detached ones first', async () => {
    await run([]);
    await run([at(ONE, '/data')]);
    check({ [ONE]: '/data' });
    host.hypervisor.passed.length = 0;
    await run([at(TWO, '/data')]);
    assert.deepEqual(host.hypervisor.passed, ['unmountVolume', 'unplugDisk', 'plugDisk', 'mountVolume']);
    check({ [TWO]: '/data' });
    host.hypervisor.passed.length = 0;
    await run([at(TWO, '/data')]);
    assert.deepEqual(host.hypervisor.passed, [], 'a repetition does nothing');
    await run([at(TWO, '/elsewhere'), at(ONE, '/data')]);
    check({ [TWO]: '/elsewhere', [ONE]: '/data' });
    await run([]);
    check({});
  });

  it('of a machine that must run for the change are not changed when it has ended, and it is not started', async () => {
    const add = (id = ID) =>
      host.registry.ensure(
        id,
        { generation: ++generation, desired: 'running', spec: SPEC, volumes: [at(ONE, '/data')] },
        { onlyIfRunning: true },
      );
    await assert.rejects(add(), refusal('conflict', /does not run/));
    assert.deepEqual(host.registry.reports(), [], 'it is not created');
    await run([]);
    await add();
    check({ [ONE]: '/data' });
    await run([]);
    const first = generation;
    vm().exitByItself({ cause: 'died', reason: 'QEMU crashed' });
    await until('the machine has failed', () => host.registry.get(ID).report().status === 'failed');
    await assert.rejects(add(), refusal('conflict', /does not run: it is failed: QEMU crashed/));
    const { status, generation: last } = host.registry.get(ID).report();
    assert.deepEqual([status, last, recorded()], ['failed', first, []]);
    assert.equal(host.hypervisor.running.get(ID), undefined);
  });

  it('are mounted parents first and unmounted children first, also at every start', async () => {
    await run([]);
    const nested = [at(ONE, '/data/inner/most'), at(TWO, '/data'), at(THREE, '/data/inner')];
    const order: string[] = [];
    const watch = () => {
      const { mounts: table } = vm();
      const set = table.set.bind(table);
      table.set = (key, value) => {
        order.push(value.path);
        return set(key, value);
      };
      const remove = table.delete.bind(table);
      table.delete = (key) => {
        order.push(`not ${table.get(key)?.path}`);
        return remove(key);
      };
    };
    watch();
    await run(nested);
    await run([]);
    assert.deepEqual(order, [
      '/data',
      '/data/inner',
      '/data/inner/most',
      'not /data/inner/most',
      'not /data/inner',
      'not /data',
    ]);
    await run(nested);
    await stop(nested);
    await run(nested);
    check({ [ONE]: '/data/inner/most', [TWO]: '/data', [THREE]: '/data/inner' });
    assert.deepEqual(
      [...vm().mounts.values()].map(({ path }) => path),
      ['/data', '/data/inner', '/data/inner/most'],
    );
  });

  it('are mounted again before a start is reported, after a stop, a reboot and a new agent', async () => {
    await run([]);
    await run([at(ONE, '/data'), at(TWO, '/more')]);
    await stop([at(ONE, '/data'), at(TWO, '/more')]);
    assert.deepEqual(users(), [undefined, undefined, undefined], 'nobody has them while it is stopped');
    await run([at(ONE, '/data'), at(TWO, '/more')]);
    check({ [ONE]: '/data', [TWO]: '/more' });
    const before = vm();
    before.exitByItself({ cause: 'rebooted', reason: 'rebooted' });
    await until('it runs again', () => {
      const now = host.hypervisor.running.get(ID);
      return now !== undefined && now !== before && host.registry.get(ID).isRunning;
    });
    check({ [ONE]: '/data', [TWO]: '/more' });
    await host.start();
    check({ [ONE]: '/data', [TWO]: '/more' });
  });

  it('can be changed while it is stopped', async () => {
    await run([at(ONE, '/data')]);
    await stop([at(ONE, '/data')]);
    await stop([at(TWO, '/data')]);
    await host.start();
    await run([at(TWO, '/data'), at(THREE, '/x')]);
    check({ [TWO]: '/data', [THREE]: '/x' });
  });

  it('that are busy stay attached, and the conflict names what keeps them busy', async () => {
    await run([at(ONE, '/data'), at(TWO, '/more')]);
    vm().holders.set(ONE, 'sleep (12)');
    await assert.rejects(run([at(TWO, '/more')]), refusal('conflict', /sleep \(12\)/));
    check({ [ONE]: '/data', [TWO]: '/more' });
    vm().holders.clear();
    await run([at(TWO, '/more')]);
    check({ [TWO]: '/more' });
  });

  it('of another running machine, of another host or named twice are refused, and nothing changes', async () => {
    await run([at(ONE, '/data')]);
    await run([], OTHER);
    await assert.rejects(run([at(ONE, '/data')], OTHER), refusal('conflict', new RegExp(`in use by machine ${ID}`)));
    check({}, OTHER);
    const unknown = '019a0000-0000-7000-8000-0000000000d9';
    await assert.rejects(run([at(ONE, '/data'), at(unknown, '/x')]), refusal('conflict', /not on this host/));
    await assert.rejects(run([at(ONE, '/a'), at(ONE, '/b')]), refusal('validation_error', /twice/));
    await assert.rejects(run([at(ONE, '/a'), at(TWO, '/a')]), refusal('validation_error', /mount_path/));
    check({ [ONE]: '/data' });
    await assert.rejects(host.dataVolumes.remove(ONE), refusal('conflict', /attached/));
    await stop([at(ONE, '/data')]);
    await run([at(ONE, '/data')], OTHER);
    check({ [ONE]: '/data' }, OTHER);
  });

  it('that cannot be mounted make the start fail with a reason, and the machine stays stopped', async () => {
    await run([]);
    await stop([]);
    host.hypervisor.newFault = () => new ServiceError('validation_error', 'the path is a file');
    host.hypervisor.faults.push('mountVolume');
    await assert.rejects(
      run([at(ONE, '/data')]),
      refusal('conflict', new RegExp(`volume ${ONE} cannot be mounted at /data: the path is a file`)),
    );
    assert.equal(host.registry.get(ID).report().status, 'stopped');
    assert.match(host.registry.get(ID).report().reason ?? '', /the path is a file/);
    assert.equal(host.hypervisor.running.size, 0);
    assert.deepEqual(users(), [undefined, undefined, undefined]);
    await run([at(ONE, '/data')]);
    check({ [ONE]: '/data' });
  });

  it('that another machine uses, or that are gone, make the start fail', async () => {
    await run([at(ONE, '/data')]);
    await assert.rejects(run([at(ONE, '/data')], OTHER), refusal('conflict', /cannot be mounted at \/data: .*in use/));
    await host.dataVolumes.remove(TWO);
    await assert.rejects(run([at(TWO, '/data')], OTHER), refusal('conflict', /not on this host/));
    assert.equal(host.registry.get(OTHER).report().status, 'stopped');
    check({ [ONE]: '/data' });
  });

  it('survive the destroy of their machine, which powers off first', async () => {
    await run([at(ONE, '/data')]);
    const { session } = vm();
    assert.ok(session);
    let hadVolume = false;
    const before = vm();
    session.powerOff = async () => {
      hadVolume = before.mounts.has(ONE) && host.dataVolumes.userOf(ONE) === ID;
      before.exitByItself({ cause: 'powered-off', reason: 'asked to' });
    };
    await host.registry.destroy(ID, ++generation);
    assert.ok(hadVolume, 'the guest could write out what it had for the volume');
    assert.deepEqual(users(), [undefined, undefined, undefined]);
    assert.ok(existsSync(host.dataVolumes.diskPath(ONE)));
    await run([at(ONE, '/data')], OTHER);
    check({ [ONE]: '/data' }, OTHER);
  });

  it('of a machine whose VM died are free, and attached at its next start', async () => {
    await run([at(ONE, '/data')]);
    vm().crash();
    await until('it failed', () => host.registry.get(ID).report().status === 'failed');
    assert.deepEqual(users(), [undefined, undefined, undefined]);
    await run([at(ONE, '/data')]);
    check({ [ONE]: '/data' });
  });

  it('that a record names but another machine uses stay with that machine, and both machines run', async () => {
    for (const [owner, other] of [
      [ID, OTHER],
      [OTHER, ID],
    ] as [string, string][]) {
      await newHost();
      await run([], other);
      await run([at(ONE, '/data')], owner);
      const path = join(host.dir, 'machines', other, 'machine.json');
      const record = JSON.parse(readFileSync(path, 'utf8'));
      record.volumes = [{ volumeId: ONE, slot: 0, path: '/data', isMounted: true }];
      host.kill();
      writeFileSync(path, JSON.stringify(record));
      await host.start();
      check({ [ONE]: '/data' }, owner);
      check({}, other);
    }
  });

  it('of a VM that does not answer the next agent are assumed to be plugged', async () => {
    await run([at(ONE, '/data')]);
    host.kill();
    vm().pluggedDisks = async () => assert.fail('no answer');
    await host.start();
    await assert.rejects(run([at(ONE, '/data')], OTHER), refusal('conflict', /in use/));
    check({ [ONE]: '/data' });
  });

  const POINTS: FaultPoint[] = ['plugDisk', 'mountVolume', 'unmountVolume', 'unplugDisk'];
  for (const point of POINTS) {
    for (const kind of ['refuses', 'breaks'] as const) {
      it(`end in what is wanted when ${point} ${kind} and is repeated (CTL-2)`, async () => {
        await run([at(ONE, '/data')]);
        host.hypervisor.newFault = () =>
          kind === 'refuses' ? new ServiceError('host_unavailable', 'not now') : new Error('forced fault');
        host.hypervisor.faults.push(point);
        await assert.rejects(run([at(TWO, '/data')]), refusal('host_unavailable', /./));
        assert.ok(isTrue(), 'nothing counts as mounted that is not');
        await run([at(TWO, '/data')]);
        check({ [TWO]: '/data' });
        await run([at(ONE, '/data')]);
        check({ [ONE]: '/data' });
      });
    }
    for (const when of ['before', 'after'] as const) {
      for (const wanted of [[at(TWO, '/data')], [at(ONE, '/data')]] as MachineVolume[][]) {
        const outcome = wanted[0]?.volume_id === ONE ? 'undone' : 'finished';
        it(`an agent that dies ${when} ${point} leaves what the next one finds and the change is ${outcome} (CTL-2)`, async () => {
          await run([at(ONE, '/data')]);
          host.hypervisor.isFatal = (passed, moment) => {
            const isFatal = passed === point && moment === when && !host.isDead;
            if (isFatal) host.kill();
            return isFatal;
          };
          void run([at(TWO, '/data')]).catch(() => {});
          await until('the agent died', () => host.isDead);
          host.hypervisor.isFatal = () => false;
          await host.start();
          assert.deepEqual(
            [...vm().plugged.values()].map(({ serial }) => serial).sort(),
            recorded()
              .map(({ volumeId }) => volumeId)
              .sort(),
            'what QEMU has is what is recorded',
          );
          assert.ok(isTrue(), 'nothing counts as mounted that is not');
          assert.deepEqual(
            users().map((user) => user === ID),
            [ONE, TWO, THREE].map((id) => recorded().some(({ volumeId }) => volumeId === id)),
          );
          await run(wanted);
          check(Object.fromEntries(wanted.map((one) => [one.volume_id, one.mount_path])));
        });
      }
    }
  }

  it('an agent that dies while a start plugs them leaves a machine that can be started (CTL-2)', async () => {
    for (const when of ['before', 'after'] as const) {
      for (const point of ['plugDisk', 'mountVolume'] as const) {
        await newHost();
        await stop([]);
        host.hypervisor.isFatal = (passed, moment) => {
          const isFatal = passed === point && moment === when && !host.isDead;
          if (isFatal) host.kill();
          return isFatal;
        };
        void run([at(ONE, '/data'), at(TWO, '/more')]).catch(() => {});
        await until('the agent died', () => host.isDead);
        host.hypervisor.isFatal = () => false;
        await host.start();
        assert.equal(host.registry.get(ID).report().status, 'stopped');
        assert.equal(host.hypervisor.running.size, 0);
        assert.deepEqual(users(), [undefined, undefined, undefined]);
        await run([at(ONE, '/data'), at(TWO, '/more')]);
        check({ [ONE]: '/data', [TWO]: '/more' });
      }
    }
  });
});
