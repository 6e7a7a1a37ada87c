// Kills the agent at each step of a snapshot, a restore, or a machine's claim of a root volume. The machine runs, is
// stopped, or dies with the agent. The next agent must reach one of the two legal states, without losing the guest's
// data or leaving files behind.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { FakeHost, SPEC } from './support/fake-host.ts';
import type { FaultPoint } from './support/fake-hypervisor.ts';
import { MortalFiles } from './support/mortal-files.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const OTHER = '019a0000-0000-7000-8000-00000000000b';
const SNAPSHOT = '019a0000-0000-7000-8000-0000000000f1';
const EARLIER = '019a0000-0000-7000-8000-0000000000f0';
const VOLUME = '019a0000-0000-7000-8000-0000000000ff';
/** Size of an empty overlay in bytes. The fake guest's data follows it. */
const EMPTY_BYTES = 256 * 1024;

type Death =
  | { kind: 'file'; pass: number; when: 'before' | 'after' }
  | { kind: 'step'; pass: number; when: 'before' | 'after' };
type Operation = {
  name: string;
  prepare: (host: FakeHost) => Promise<void>;
  act: (host: FakeHost, generation: number) => Promise<unknown>;
  /**
   * Possible contents of the machine's disk after the crash, before `act` is repeated. `finally`: the content after the
   * repetition.
   */
  contents: string[];
  finally: string;
  check?: (host: FakeHost) => void;
  machine?: string;
};

const want = (generation: number, desired: 'running' | 'stopped', more = {}) => ({
  generation,
  desired,
  spec: SPEC,
  ...more,
});
const start = (host: FakeHost, generation = 1) => host.registry.ensure(ID, want(generation, 'running'));
const stop = (host: FakeHost, generation: number) => host.registry.ensure(ID, want(generation, 'stopped'));
const write = (host: FakeHost, text: string) => host.hypervisor.running.get(ID)?.write(text);
const take = (host: FakeHost, id: string, generation: number) =>
  host.registry.takeSnapshot(ID, id, { generation, memory: false });
const tailOf = (path: string) => readFileSync(path).subarray(EMPTY_BYTES).toString();
const layerText = (host: FakeHost, ids: readonly string[]) => ids.map((id) => tailOf(host.layers.pathOf(id))).join('');
const diskText = (host: FakeHost, id = ID) => {
  const record = JSON.parse(readFileSync(join(host.paths.machines, id, 'machine.json'), 'utf8'));
  const disk = join(host.paths.machines, id, 'disk.qcow2');
  return layerText(host, record.layers) + (existsSync(disk) ? tailOf(disk) : '');
};
const snapshotHolds = (text: string) => (host: FakeHost) => {
  const record = host.snapshots.find(SNAPSHOT) ?? assert.fail('no snapshot');
  assert.equal(layerText(host, record.layers), text);
};
const isStill = (host: FakeHost) => {
  const vm = host.hypervisor.running.get(ID);
  assert.ok(!vm || vm.wasFrozen, 'the file systems were frozen when the disk was switched');
};

const OPERATIONS: Operation[] = [
  {
    name: 'a snapshot of a running machine',
    prepare: async (host) => {
      await start(host);
      write(host, 'a');
      await take(host, EARLIER, 1);
      write(host, 'b');
    },
    act: (host, generation) => take(host, SNAPSHOT, generation),
    contents: ['ab'],
    finally: 'ab',
    check: (host) => {
      snapshotHolds('ab')(host);
      isStill(host);
    },
  },
  {
    name: 'a snapshot of a stopped machine',
    prepare: async (host) => {
      await start(host);
      write(host, 'a');
      await stop(host, 1);
    },
    act: (host, generation) => take(host, SNAPSHOT, generation),
    contents: ['a'],
    finally: 'a',
    check: snapshotHolds('a'),
  },
  {
    name: 'a restore of a running machine',
    prepare: async (host) => {
      await start(host);
      write(host, 'a');
      await take(host, SNAPSHOT, 1);
      write(host, 'b');
    },
    act: (host, generation) => host.registry.ensure(ID, want(generation, 'running', { restore_snapshot_id: SNAPSHOT })),
    contents: ['ab', 'a'],
    finally: 'a',
    check: snapshotHolds('a'),
  },
  {
    name: 'a machine that takes a root volume',
    prepare: async (host) => {
      await start(host);
      write(host, 'a');
      await take(host, EARLIER, 1);
      write(host, 'b');
      await host.registry.destroy(ID, 2, VOLUME);
    },
    act: (host, generation) => {
      const spec = { ...SPEC, root_volume_id: VOLUME };
      return host.registry.ensure(OTHER, { generation, desired: 'stopped', spec });
    },
    contents: ['ab'],
    finally: 'ab',
    machine: OTHER,
    check: (host) => assert.deepEqual(readdirSync(host.paths.volumes), []),
  },
];

describe('disk operations after kill -9', () => {
  let files: MortalFiles;
  before(() => {
    // This test runs hundreds of agents that sync their files, so it uses a file system where that takes no time.
    if (existsSync('/dev/shm')) process.env.TMPDIR = '/dev/shm';
    files = new MortalFiles();
  });
  after(() => files.close());

  /** Counts the file changes and the hypervisor steps of an operation. */
  const lengthOf = async (operation: Operation) => {
    const host = new FakeHost();
    await host.start();
    await operation.prepare(host);
    const steps = host.hypervisor.passed.length;
    files.begin();
    await operation.act(host, 10);
    const counts = { file: files.passed, step: host.hypervisor.passed.length - steps };
    files.revive();
    operation.check?.(host);
    host.remove();
    return counts;
  };

  const live = async (host: FakeHost, operation: Operation, death: Death) => {
    await host.start();
    await operation.prepare(host);
    let die = () => {};
    const dead = new Promise<void>((resolve) => {
      die = () => {
        host.kill();
        resolve();
      };
    });
    let steps = 0;
    let isOver = false;
    host.hypervisor.isFatal = (_: FaultPoint, when) => {
      if (isOver || death.kind !== 'step') return false;
      if (when === 'before') steps++;
      if (steps !== death.pass || when !== death.when) return false;
      isOver = true;
      files.die();
      die();
      return true;
    };
    files.onDeath = die;
    files.begin(death.kind === 'file' ? death : undefined);
    await Promise.race([operation.act(host, 10).catch(() => {}), dead]);
    // Wait until the file operations that the dead agent had started are finished, because after a real kill the kernel
    // would finish them too.
    for (let turn = 0; turn < 50; turn++) await stat('/');
    host.kill();
    files.revive();
    host.hypervisor.isFatal = () => false;
  };

  for (const operation of OPERATIONS) {
    for (const vmLives of [true, false]) {
      it(`${operation.name}, whose QEMU ${vmLives ? 'lives on' : 'dies too'}: nothing is lost, nothing is left, and it can be repeated (CTL-2, CTL-3)`, async () => {
        const id = operation.machine ?? ID;
        const lengths = await lengthOf(operation);
        assert.ok(lengths.file > 4, JSON.stringify(lengths));
        for (const kind of ['file', 'step'] as const) {
          for (let pass = 1; pass <= lengths[kind]; pass++) {
            for (const when of ['before', 'after'] as const) {
              const what = `killed ${when} ${kind} ${pass} of ${lengths[kind]}`;
              const host = new FakeHost();
              try {
                await live(host, operation, { kind, pass, when });
                for (const vm of host.hypervisor.running.values()) vm.isFrozen = false;
                if (!vmLives) host.hypervisor.running.clear();
                await host.start(vmLives ? 'boot-1' : 'boot-2');
                host.garbage.collect();
                if (existsSync(join(host.paths.machines, id)))
                  assert.ok(operation.contents.includes(diskText(host, id)), `${what}: ${diskText(host, id)}`);
                assert.deepEqual(await host.audit.look(), [], what);
                const running = host.hypervisor.running.get(ID);
                if (running && operation.contents.length === 1) {
                  running.write('+');
                  assert.ok(diskText(host).endsWith('+'), `${what}: what is written now is on the disk`);
                }
                const expected =
                  operation.contents.length === 1 && running ? `${operation.finally}+` : operation.finally;
                const wasTaken = host.snapshots.find(SNAPSHOT) !== undefined;
                await operation.act(host, 20);
                assert.equal(diskText(host, id), expected, what);
                if (expected === operation.finally || wasTaken) operation.check?.(host);
                else isStill(host);
                for (const snapshot of host.snapshots.ids()) host.snapshots.remove(snapshot);
                for (const machine of readdirSync(host.paths.machines)) await host.registry.destroy(machine, 30);
                host.garbage.collect();
                assert.deepEqual(readdirSync(host.paths.layers), [], what);
                assert.deepEqual(readdirSync(host.paths.machines), [], what);
                assert.deepEqual(host.hypervisor.violations, [], what);
              } catch (error) {
                throw new Error(what, { cause: error });
              } finally {
                files.revive();
                await host.registry.close().catch(() => {});
                host.remove();
              }
            }
          }
        }
      });
    }
  }
});
