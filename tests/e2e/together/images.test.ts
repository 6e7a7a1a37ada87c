// Tests `sandbar image build` and `sandbar image import` while the service runs, then boots and clones machines of the
// new images and runs jobs in them.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ExecCreate } from '@sandbar/contract/exec.ts';
import { defaultCache } from '@sandbar/contract/home.ts';
import type { Image } from '@sandbar/contract/image.ts';
import { type TarItem, writeLayout } from '../../../packages/host-agent/tests/support/oci-layout.ts';
import { type Registry, startRegistry } from '../../../packages/host-agent/tests/support/registry.ts';
import { createClone } from '../support/clones.ts';
import { IS_ROOT, isClone, run } from '../support/host.ts';
import {
  call,
  createMachine,
  destroyMachine,
  expectStatus,
  readAll,
  sh,
  startExec,
  until,
  waitForExec,
} from '../support/service.ts';

const CLI = new URL('../../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;
const CACHE = defaultCache(process.env, IS_ROOT);
const NAME = `test-${randomBytes(4).toString('hex')}`;
/** The memory size is unique to this test, so that every template of this size belongs to the image of this test. */
const TINY = { stack: NAME, memory_mb: 168, rootfs_size_gb: 1 };
const PYTHON = { stack: 'python', memory_mb: 248, rootfs_size_gb: 2 };
const NODE = { stack: 'node', memory_mb: 232, rootfs_size_gb: 2 };

const sandbar = (...args: string[]) => run(process.execPath, [CLI, ...args]);

/** The layer of a small image: busybox, two users and an entrypoint. `greeting` identifies the build of the image. */
async function tinyLayers(greeting: string): Promise<TarItem[]> {
  const busybox = ['/bin/busybox', '/usr/bin/busybox'].find((file) => existsSync(file)) ?? 'busybox';
  const folder = (name: string): TarItem => ({ name, type: '5', mode: 0o755 });
  return [
    ...['bin', 'etc', 'home', 'home/app'].map(folder),
    { name: 'bin/busybox', mode: 0o755, data: await readFile(busybox) },
    ...['sh', 'id', 'pwd', 'cat', 'env'].map(
      (name): TarItem => ({ name: `bin/${name}`, type: '2', linkName: 'busybox' }),
    ),
    { name: 'bin/entry', mode: 0o755, data: '#!/bin/sh\necho "entry of $GREETING: $*"\nexec "$@"\n' },
    { name: 'etc/passwd', data: 'root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n' },
    { name: 'etc/group', data: 'root:x:0:\napp:x:1000:\nstaff:x:50:\n' },
    { name: 'etc/greeting', data: greeting },
  ];
}

async function push(registry: Registry, folder: string, greeting: string): Promise<void> {
  const config = {
    Env: ['PATH=/opt/bin:/bin', `GREETING=${greeting}`],
    User: 'app:staff',
    WorkingDir: '/srv/app',
    Entrypoint: ['/bin/entry'],
  };
  const layers = [await tinyLayers(greeting)];
  await registry.push(await writeLayout(path.join(folder, greeting), { layers, config, tag: 'v1' }), 'v1', 'tiny');
}

async function output(machineId: string, job: ExecCreate): Promise<string> {
  const { id } = await startExec(machineId, job);
  const { exit_code } = await waitForExec(machineId, id);
  const said = (await readAll(machineId, id)).toString();
  assert.equal(exit_code, 0, `${said}${await readAll(machineId, id, 'stderr')}`);
  return said;
}

const isListed = async (stack: string) => {
  const { images } = await expectStatus<{ images: Image[] }>(200, 'GET', '/v1/images');
  return images.some((image) => image.stack === stack);
};

describe('an imported image', { skip: !IS_ROOT }, () => {
  let folder: string;
  let registry: Registry;
  let reference: string;
  const machines: string[] = [];
  const disks: string[] = [];

  /** Imports the image that the registry has now, and notes its disk file for removal after the tests. */
  const importTiny = async () => {
    const { status, stderr } = sandbar('image', 'import', NAME, reference);
    assert.equal(status, 0, stderr);
    const build = path.join(CACHE, 'images', NAME, 'current');
    const { rootfs } = JSON.parse(await readFile(path.join(build, 'manifest.json'), 'utf8'));
    disks.push(path.dirname(path.resolve(CACHE, 'images', NAME, 'build', rootfs.path)));
  };
  const created = async (machine: Promise<{ id: string }>) => {
    const { id } = await machine;
    machines.push(id);
    return id;
  };

  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'image-e2e-'));
    registry = await startRegistry(path.join(folder, 'registry'));
    reference = `docker://${registry.address}/tiny:v1`;
  });
  after(async () => {
    await Promise.all(machines.map(destroyMachine));
    await registry?.stop();
    for (const disk of [...disks, path.join(CACHE, 'images', NAME), folder])
      await rm(disk, { recursive: true, force: true });
    await utimes(path.join(CACHE, 'images'), new Date(), new Date());
    await until('its name is free again', async () => !(await isListed(NAME)));
  });

  it('is listed without a restart, boots, and gives jobs its environment, user, folder and entrypoint', async () => {
    assert.equal((await call('POST', '/v1/machines', TINY)).status, 400);
    await push(registry, folder, 'one');
    await importTiny();
    await until('it is listed', () => isListed(NAME));
    const id = await created(createMachine(TINY));

    assert.equal(await output(id, { argv: ['id'] }), 'entry of one: id\nuid=1000(app) gid=50(staff)\n');
    const command = 'pwd; id -un; echo $GREETING $PATH $HOME';
    assert.equal(await output(id, { command }), '/srv/app\napp\none /opt/bin:/bin /home/app\n');
    const own = { env: { GREETING: 'mine' }, user: 'root', cwd: '/etc' };
    assert.equal(await output(id, { command, ...own }), '/etc\nroot\nmine /opt/bin:/bin /root\n');
    assert.equal(await output(id, { argv: ['cat', 'greeting'], ...own }), 'entry of mine: cat greeting\none');
  });

  it('can be cloned, and clones have the same entrypoint and working directory', async () => {
    const id = await created(createClone(TINY));
    assert.ok(isClone(id));
    assert.equal(await output(id, { argv: ['pwd'] }), 'entry of one: pwd\n/srv/app\n');
  });

  it('does not change existing machines when it is imported again, not even after their next start', async () => {
    const id = await created(createMachine(TINY));
    await push(registry, folder, 'two');
    await importTiny();
    const [mine, other] = [{ command: 'cat /etc/greeting; echo $GREETING' }, await created(createMachine(TINY))];
    assert.equal(await output(other, mine), 'twotwo\n');
    assert.equal(await output(id, mine), 'oneone\n');
    await expectStatus(200, 'POST', `/v1/machines/${id}/stop`);
    await expectStatus(200, 'POST', `/v1/machines/${id}/start`);
    assert.equal(await output(id, mine), 'oneone\n');
  });

  it('that cannot be fetched is a one-line error of the command, and the earlier import stays', async () => {
    const gone = sandbar('image', 'import', NAME, `docker://${registry.address}/gone:v1`);
    assert.equal(gone.status, 1);
    assert.match(gone.stderr, /^sandbar: The registry has no such image/m);
    const base = sandbar('image', 'import', 'base', reference);
    assert.equal(base.status, 1);
    assert.match(base.stderr, /^sandbar: .* import under another name\n$/);
    assert.ok(await isListed(NAME));
  });
});

describe('an image built from a recipe', { skip: !IS_ROOT }, () => {
  it('node is built by the command, boots, and has node and npm', async () => {
    const { status, stderr: log } = sandbar('image', 'build', 'node');
    assert.equal(status, 0, log);
    await until('it is listed', () => isListed('node'));
    const machine = await createMachine(NODE);
    try {
      assert.equal(await output(machine.id, { argv: ['node', '-p', '6 * 7'] }), '42\n');
      assert.match(await output(machine.id, { command: 'npm --version' }), /^\d+\.\d+\.\d+\n$/);
    } finally {
      await destroyMachine(machine.id);
    }
  });

  it('python is built by the command, boots, is cloned, and has python3, pip and venv', async () => {
    const { status, stderr: log } = sandbar('image', 'build', 'python');
    assert.equal(status, 0, log);
    await until('it is listed', () => isListed('python'));
    const booted = await createMachine(PYTHON);
    const clone = await createClone(PYTHON);
    try {
      for (const { id } of [booted, clone]) {
        assert.equal(await output(id, { argv: ['python3', '-c', 'print(6 * 7)'] }), '42\n');
      }
      const { stdout, stderr, code } = await sh(
        clone.id,
        'python3 -m venv /tmp/v && /tmp/v/bin/python -c "import sys; print(sys.prefix)" && pip --version && pip config list',
      );
      assert.equal(code, 0, stderr);
      assert.match(stdout, /^\/tmp\/v\npip \d.*python 3[\s\S]*break-system-packages='true'/);
    } finally {
      for (const { id } of [booted, clone]) await destroyMachine(id);
    }
  });
});
