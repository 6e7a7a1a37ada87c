// A template is warmed up before its clones have an identity. The warm-up of a template of a user's snapshot must run
// none of the snapshot's programs. The snapshot of this test has programs that leave a mark when they run.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { ExecCreate } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { templateOf } from '../support/clones.ts';
import { IS_ROOT } from '../support/host.ts';
import { MARKER, markerProgram } from '../support/marker-program.ts';
import {
  call,
  createMachine,
  destroyMachine,
  expectStatus,
  readAll,
  startExec,
  until,
  waitForExec,
} from '../support/service.ts';

/** The loader is replaced last, because afterwards no program with a library runs on that machine. */
const REPLACED = ['/bin/sh', '/bin/true', '/bin/echo', '/sbin/modprobe', '/lib64/ld-linux-x86-64.so.2'];
/** The machine's own loader under another name. It runs a program without the loader at the usual path. */
const LOADER = '/root/loader';
/** How long a first boot and the making of a template may take, under emulation and in parallel with other tests. */
const TEMPLATE_TIMEOUT_MS = 120_000;

/** Python that replaces programs. Its arguments are pairs of a path and the new program in base64. */
const REPLACE = `
import base64, os, shutil, sys
shutil.copy('${REPLACED.at(-1)}', '${LOADER}')
os.chmod('${LOADER}', 0o755)
pairs = sys.argv[1:]
for path, program in zip(pairs[::2], pairs[1::2]):
  path = os.path.realpath(path)
  with open(path + '.new', 'wb') as file: file.write(base64.b64decode(program))
  os.chmod(path + '.new', 0o755)
  os.rename(path + '.new', path)
os.sync()`;

describe('warm-up', { skip: !IS_ROOT && 'only root can see whether a machine is a clone' }, () => {
  const machines: Machine[] = [];
  let snapshot: Snapshot;
  before(async () => {
    const source = await createMachine();
    machines.push(source);
    const programs = REPLACED.flatMap((path) => [path, markerProgram(path).toString('base64')]);
    assert.deepEqual(await run(source, { argv: ['python3', '-c', REPLACE, ...programs] }), [0, '']);
    snapshot = await expectStatus(201, 'POST', `/v1/machines/${source.id}/snapshots`, {});
  });
  after(async () => {
    for (const { id } of machines) await call('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
  });

  it('a template of a snapshot runs no program of its disk, and the kernel loads no module with one (RES-11)', async () => {
    const clone = await cloneOfSnapshot();
    assert.deepEqual(await marks(clone), []);

    // Check that the programs do leave marks when they run: first the shell, then modprobe, which the kernel runs when
    // it misses a module.
    await run(clone, { command: 'true' });
    await run(clone, { argv: [LOADER, '/usr/bin/python3', '-c', 'import socket; socket.socket(socket.AF_APPLETALK)'] });
    const seen = new Set(await marks(clone));
    assert.deepEqual([...seen].sort(), ['/bin/sh', '/sbin/modprobe']);
  });

  /** Creates machines from the snapshot until one of them is a clone, which needs a template of the snapshot. */
  async function cloneOfSnapshot(): Promise<Machine> {
    let found: Machine | undefined;
    await until(
      'a clone',
      async () => {
        const machine = await createMachine({ snapshot_id: snapshot.id });
        if (templateOf(machine.id)?.layerPaths.length) {
          machines.push(machine);
          found = machine;
          return true;
        }
        // The machine booted cold, or it is a clone of a bare template. In both cases its start mounts the disk.
        assert.deepEqual(await marks(machine), []);
        await destroyMachine(machine.id);
        return false;
      },
      TEMPLATE_TIMEOUT_MS,
    );
    return found ?? assert.fail('no clone');
  }

  async function marks(machine: Machine): Promise<string[]> {
    const [code, output] = await run(machine, { argv: [LOADER, '/usr/bin/cat', MARKER] });
    return code === 0 ? output.trim().split('\n') : [];
  }

  async function run({ id }: Machine, job: ExecCreate): Promise<[number | null, string]> {
    const { id: execId } = await startExec(id, job);
    const { exit_code } = await waitForExec(id, execId);
    return [exit_code, (await readAll(id, execId)).toString()];
  }
});
