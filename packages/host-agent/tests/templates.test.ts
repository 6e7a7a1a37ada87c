// Tests templates on disk and in memory: the checks before use, which template is removed first, and when descriptors
// are closed.
import assert from 'node:assert/strict';
import {
  closeSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { shapeOf } from '../src/machines/starter.ts';
import { bareShapeOf, templateDiskGb, templateKey } from '../src/templates/shape.ts';
import {
  checkMachines,
  create,
  filled,
  idOf,
  imageOf,
  keyOf,
  NOTHING,
  specOf,
  warmHost,
  wayOf,
} from './support/clones.ts';
import { type Cloning, type FakeHost, until } from './support/fake-host.ts';
import { makeHosts } from './support/hosts-of-suite.ts';

/** Memory that the fake guest uses: one page. */
const USED_BYTES = 4096;
type Size = { vcpus: number };
const [ONE, TWO, THREE]: [Size, Size, Size] = [{ vcpus: 1 }, { vcpus: 2 }, { vcpus: 3 }];
const SHAPES = [ONE, TWO, THREE];

describe('templates', () => {
  const makeHost = makeHosts();
  const newHost = (cloning: Partial<Cloning> = {}) => makeHost({ size: 0, ...cloning });
  const has = (host: FakeHost, shape = ONE) => host.templates?.has(keyOf(host, shape)) === true;
  let next = 10;
  /** Creates `requests` machines of a shape, enough to cause a template of it, and waits for that template. */
  const makeOf = async (host: FakeHost, shape: Size, requests = 1) => {
    for (let made = 0; made < requests; made++) await create(host, ++next, shape);
    await until('a template', () => has(host, shape));
  };
  /** Uses a template until `release` is called. */
  const useOf = async (host: FakeHost, shape: Size) => {
    let release = () => {};
    let fd = -1;
    const over = new Promise<void>((resolve) => {
      release = resolve;
    });
    const done = host.templates?.use(keyOf(host, shape), (template) => {
      fd = template.restore.memoryFd;
      return over;
    });
    await until('used', () => fd >= 0);
    return {
      fd,
      release: async () => {
        release();
        await done;
      },
    };
  };

  const flip = (path: string, at: number) => {
    const content = readFileSync(path);
    const place = at < 0 ? content.length + at : at;
    const fd = openSync(path, 'r+');
    writeSync(fd, Buffer.from([(content[place] ?? 0) ^ 1]), 0, 1, place);
    closeSync(fd);
  };
  const spoilers: [string, (dir: string) => void][] = [
    ['a byte of its memory', (dir) => flip(join(dir, 'memory'), 3 * 4096 + 7)],
    ['a byte of its memory where nothing was', (dir) => flip(join(dir, 'memory'), 4 * 2 ** 20 + 9)],
    ['a byte of its device state', (dir) => flip(join(dir, 'state'), -1)],
    ['a byte of its disk', (dir) => flip(join(dir, 'disk.qcow2'), 100)],
    ['a byte of its manifest', (dir) => flip(join(dir, 'manifest.json'), 0)],
    ['the shape in its manifest', (dir) => edit(join(dir, 'manifest.json'), '"vcpus":1', '"vcpus":2')],
    [
      'the key in its manifest',
      (dir) =>
        edit(
          join(dir, 'manifest.json'),
          /"key":"./.exec(readFileSync(join(dir, 'manifest.json'), 'utf8'))?.[0] ?? '',
          '"key":"x',
        ),
    ],
    ['an empty manifest', (dir) => writeFileSync(join(dir, 'manifest.json'), '')],
    ['a missing manifest', (dir) => rmSync(join(dir, 'manifest.json'))],
    ['a missing state', (dir) => rmSync(join(dir, 'state'))],
    ['a memory file that was cut off', (dir) => truncateSync(join(dir, 'memory'), 4096)],
  ];
  const edit = (path: string, from: string, to: string) => {
    const text = readFileSync(path, 'utf8');
    assert.ok(from !== '' && text.includes(from));
    writeFileSync(path, text.replace(from, to));
  };
  for (const [what, spoil] of spoilers) {
    it(`after a change of ${what}, nothing is restored from it, and it is made anew (CLN-5)`, async () => {
      const host = await warmHost(newHost());
      host.kill();
      spoil(join(host.paths.templates, keyOf(host)));
      await host.start();
      await create(host, 2);
      assert.equal(wayOf(host, 2), 'boot');
      await until('a template', () => has(host));
      await create(host, 3);
      assert.equal(wayOf(host, 3), 'clone now');
      checkMachines(host);
    });
  }

  it('one that is whole is used by the next agent as it is (CLN-5)', async () => {
    const host = await warmHost(newHost());
    const before = statSync(join(host.paths.templates, keyOf(host), 'memory')).ino;
    await host.start();
    await until('loaded', () => has(host));
    await create(host, 2);
    assert.equal(wayOf(host, 2), 'clone now');
    assert.equal(statSync(join(host.paths.templates, keyOf(host), 'memory')).ino, before);
  });

  it('those of another QEMU, processor or command line are removed (CLN-5)', async () => {
    const host = await warmHost(newHost());
    const old = keyOf(host);
    host.hypervisor.fingerprint = 'an update';
    await host.start();
    await create(host, 2);
    assert.equal(wayOf(host, 2), 'boot');
    await until('a template', () => has(host));
    assert.deepEqual([readdirSync(host.paths.templates), keyOf(host) === old], [[keyOf(host)], false]);
  });

  it('whatever a clone depends on is in the key (CLN-5)', () => {
    const image = { kernelPath: 'k', initramfsPath: 'i', rootfsPath: 'r' };
    const shape = { image, layerPaths: ['a'], vcpus: 1, memoryMb: 8, diskGb: 1 };
    const others = [
      { ...shape, vcpus: 2 },
      { ...shape, memoryMb: 9 },
      { ...shape, diskGb: 2 },
      { ...shape, layerPaths: [] },
      { ...shape, layerPaths: ['a', 'b'] },
      ...(['kernelPath', 'initramfsPath', 'rootfsPath'] as const).map((path) => ({
        ...shape,
        image: { ...shape.image, [path]: 'another' },
      })),
    ];
    const keys = [templateKey(shape, 'f'), templateKey(shape, 'g'), ...others.map((one) => templateKey(one, 'f'))];
    assert.equal(new Set(keys).size, 10);
    assert.equal(templateKey({ ...shape }, 'f'), keys[0]);
    // Of a bare template only the kernel, the initramfs and the size in processors and memory matter.
    const bareKeys = [shape, ...others].map((one) => templateKey(bareShapeOf(one), 'f'));
    assert.equal(new Set([...bareKeys, ...keys]).size, keys.length + 5);
    const isSame = others.map((one, index) => [one, bareKeys[index + 1] === bareKeys[0]] as const);
    for (const [one, same] of isSame)
      assert.equal(
        same,
        one.vcpus === shape.vcpus &&
          one.memoryMb === shape.memoryMb &&
          one.image.kernelPath === shape.image.kernelPath &&
          one.image.initramfsPath === shape.image.initramfsPath,
      );
  });

  it('disks have only two sizes, and are never larger than requested', () => {
    assert.deepEqual(
      [1, 2, 50, 1000].map((gb) => templateDiskGb(gb, 1)).map((gb, index) => gb <= ([1, 2, 50, 1000][index] ?? 0)),
      [true, true, true, true],
    );
    assert.equal(templateDiskGb(50, 1), templateDiskGb(1000, 2));
  });

  it('neither the template of a snapshot nor its clones run a program of its disk in their warm-up (RES-11)', async () => {
    const host = newHost({ size: 1, baseline: 1 });
    await host.start();
    const layers = [join(host.paths.layers, 'of-a-user.qcow2')];
    const shape = { ...shapeOf({ spec: specOf(1), image: imageOf(host), layerPaths: [] }), layerPaths: layers };
    host.pool?.keep(shape);
    await filled(host);
    assert.deepEqual(host.hypervisor.violations, []);
    assert.ok(host.hypervisor.passed.filter((point) => point === 'warmUp').length > 10);
    await host.close();
  });

  it('when memory is short, the least requested template is unloaded and stays on disk', async () => {
    const host = newHost({ memoryBytes: 2 * USED_BYTES });
    await host.start();
    for (const shape of SHAPES.slice(0, 2)) await makeOf(host, shape);
    await create(host, 2, ONE);
    await makeOf(host, THREE, 2);
    assert.deepEqual(
      SHAPES.map((shape) => has(host, shape)),
      [true, false, true],
    );
    assert.equal(readdirSync(host.paths.templates).length, 3);
    // When it is requested more often than the others, it is loaded from disk. Only the two machines are launched.
    const launches = host.hypervisor.launched.length;
    await makeOf(host, TWO, 2);
    assert.equal(host.hypervisor.launched.length, launches + 2);
    assert.deepEqual(
      SHAPES.map((shape) => has(host, shape)),
      [false, true, true],
    );
  });

  it('the next agent loads the most recently used templates, as many as fit into memory', async () => {
    const host = newHost();
    await host.start();
    for (const shape of SHAPES) await makeOf(host, shape);
    for (const index of [2, 0]) await create(host, 2 + index, SHAPES[index]);
    Object.assign(host.cloning ?? {}, { memoryBytes: 2 * USED_BYTES });
    for (let restart = 0; restart < 3; restart++) {
      await host.start();
      await until('two are loaded', () => SHAPES.filter((shape) => has(host, shape)).length === 2);
      await host.templates?.close();
      await host.start();
      await until('loaded', () => has(host, ONE) && has(host, THREE));
      assert.equal(has(host, TWO), false);
    }
  });

  it('when disk space is short, the least requested template is removed', async () => {
    const host = newHost();
    await host.start();
    await makeOf(host, ONE);
    const dir = join(host.paths.templates, keyOf(host));
    const bytes = readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).blocks * 512, 0);
    await makeOf(host, TWO);
    await create(host, 2, ONE);
    Object.assign(host.cloning ?? {}, { diskBytes: 2.5 * bytes });
    await host.start();
    await until('both are loaded', () => has(host, ONE) && has(host, TWO));
    await makeOf(host, THREE);
    assert.deepEqual(readdirSync(host.paths.templates).sort(), [keyOf(host, ONE), keyOf(host, THREE)].sort());
    assert.equal(has(host, TWO), false);
  });

  it('a template larger than the limit is kept anyway', async () => {
    const host = newHost({ memoryBytes: 1, diskBytes: 1 });
    await host.start();
    await makeOf(host, ONE);
    await makeOf(host, TWO, 2);
    assert.deepEqual(
      SHAPES.map((shape) => has(host, shape)),
      [false, true, false],
    );
    assert.deepEqual(readdirSync(host.paths.templates), [keyOf(host, TWO)]);
  });

  it('the descriptor of one that goes stays open for as long as somebody restores from it (ISO-4)', async () => {
    const host = newHost({ memoryBytes: 1 });
    await host.start();
    await makeOf(host, ONE);
    const one = await useOf(host, ONE);
    const two = await useOf(host, ONE);
    await makeOf(host, TWO, 4);
    assert.equal(has(host, ONE), false);
    const { ino } = fstatSync(one.fd);
    await one.release();
    assert.equal(fstatSync(one.fd).ino, ino);
    await two.release();
    assert.ok(isClosed(one.fd, ino));
    await host.close();
  });

  it('a clone under way while its template is pushed out gets its memory (ISO-4)', async () => {
    const host = newHost({ memoryBytes: 1 });
    await host.start();
    await makeOf(host, ONE);
    const release = host.hypervisor.hold('attach');
    const creating = create(host, 2, ONE);
    const passed = host.hypervisor.passed.length;
    await until('attach', () => host.hypervisor.passed.slice(passed - 1).includes('attach'));
    host.templates?.pin({ image: imageOf(host), layerPaths: [], ...TWO, memoryMb: 8, diskGb: 1 });
    release();
    await creating;
    await until('the other', () => host.templates?.has(keyOf(host, TWO)) === true);
    assert.equal(wayOf(host, 2), 'clone now');
    checkMachines(host);
  });

  for (const part of ['state', 'disk.qcow2'] as const) {
    it(`a template whose ${part} somebody removed causes a cold boot`, async () => {
      const host = await warmHost(newHost());
      rmSync(join(host.paths.templates, keyOf(host), part));
      await create(host, 2);
      assert.equal(wayOf(host, 2), 'boot');
      checkMachines(host);
      await host.registry.destroy(idOf(1), 9);
      await host.registry.destroy(idOf(2), 9);
      await host.close();
      assert.deepEqual(host.left(), NOTHING);
    });
  }

  it("an agent that ends does not wait for a template's boot", { timeout: 20_000 }, async () => {
    const host = newHost();
    await host.start();
    await create(host, 1);
    const release = host.hypervisor.hold('connectGuest');
    await until('its boot', () => host.hypervisor.launched.length === 2);
    await host.templates?.close();
    release();
    assert.deepEqual(host.left().vms, [idOf(1)]);
    assert.deepEqual(readdirSync(host.paths.templates), []);
    assert.ok(!host.warnings.some((warning) => warning.includes('could not be made')));
  });

  for (const kind of ['full', 'bare'] as const) {
    it(`a guest that powers off in its boot, as without a working timer, becomes no ${kind} template`, async () => {
      const host = newHost();
      await host.start();
      const shape = shapeOf({ spec: specOf(0), image: imageOf(host), layerPaths: [] });
      const release = host.hypervisor.hold('connectGuest');
      host.templates?.pin(kind === 'bare' ? bareShapeOf(shape) : shape);
      await until('its boot', () => host.hypervisor.passed.includes('connectGuest'));
      for (const vm of host.hypervisor.running.values())
        vm.exitByItself({ cause: 'powered-off', reason: 'powered off' });
      await until('it failed', () => host.warnings.some((warning) => warning.includes('could not be made')));
      release();
      assert.ok(!host.hypervisor.passed.includes('saveDevices'));
      assert.deepEqual([host.left(), readdirSync(host.paths.templates)], [NOTHING, []]);
    });
  }

  it('an unfinished template leaves no descriptor', async () => {
    const host = newHost();
    await host.start();
    const memories = () =>
      readdirSync('/proc/self/fd').filter((fd) => {
        try {
          return fstatSync(Number(fd)).nlink === 0 && fstatSync(Number(fd)).size === 8 * 2 ** 20;
        } catch {
          return false;
        }
      }).length;
    const before = memories();
    host.hypervisor.isFaulty = (point) => {
      // The state file is missing when its hash is computed.
      if (point === 'end')
        for (const name of readdirSync(host.paths.templates))
          rmSync(join(host.paths.templates, name, 'state'), { force: true });
      return false;
    };
    await create(host, 1);
    await until('it failed', () => host.warnings.some((warning) => warning.includes('could not be made')));
    assert.equal(memories(), before);
    assert.deepEqual(readdirSync(host.paths.templates), []);
  });
});

/** Whether the descriptor is closed or refers to another file by now. */
function isClosed(fd: number, ino: number): boolean {
  try {
    return fstatSync(fd).ino !== ino;
  } catch {
    return true;
  }
}
