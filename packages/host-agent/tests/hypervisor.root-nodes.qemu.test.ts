// Tests, with a real QEMU, that a flattened disk file is complete even when QEMU is killed right after the copy.
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { qemuArgs, ROOT_DEVICE, ROOT_NODE } from '../src/hypervisor/qemu-args.ts';
import { QmpClient } from '../src/hypervisor/qmp.ts';
import { RootNodes } from '../src/hypervisor/root-nodes.ts';
import { connectUnixWhenReady } from '../src/hypervisor/unix-socket.ts';

const MIB = 1024 ** 2;
const LAYER = '019a0000-0000-7000-8000-000000000101';
const FAST = 1024 * MIB;
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

describe('the root disk of a real QEMU', () => {
  const processes: ChildProcess[] = [];
  const folders: string[] = [];
  let dir: string;
  let layerPaths: string[];
  let content: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'sandbar-root-nodes-'));
    folders.push(dir);
    writeFileSync(at('image.raw'), randomBytes(8 * MIB));
    layerPaths = [0, 1, 2].map((number) => {
      const path = at(`layer${number}.qcow2`);
      execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', path, '8M']);
      const where = ['-c', `write -P ${number + 1} ${number}M 2M`];
      execFileSync('qemu-io', [...where, path], { stdio: 'ignore' });
      return path;
    });
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', at('disk.qcow2'), '8M']);
    content = contentOf(layerPaths);
  });
  after(() => {
    for (const one of processes) one.kill('SIGKILL');
    for (const folder of folders) rmSync(folder, { recursive: true });
  });

  const at = (name: string) => join(dir, name);

  /** Returns a checksum of the disk's content when it is read through these layers. */
  function contentOf(layers: string[]): string {
    let chain: object = { driver: 'raw', file: { driver: 'file', filename: at('image.raw') } };
    for (const filename of [...layers, at('disk.qcow2')])
      chain = { driver: 'qcow2', file: { driver: 'file', filename }, backing: chain };
    execFileSync('qemu-img', ['convert', '-O', 'raw', `json:${JSON.stringify(chain)}`, at('content.raw')]);
    return sha256(readFileSync(at('content.raw')));
  }

  /** Starts a QEMU without a running guest, with the block nodes and the disk of a machine. */
  async function start(): Promise<{ qmp: QmpClient; kill: () => Promise<void> }> {
    const args = qemuArgs(
      {
        vmId: '0123456789ab',
        vcpus: 1,
        memoryMb: 64,
        diskPath: at('disk.qcow2'),
        imagePath: at('image.raw'),
        layerPaths,
        runDir: dir,
        nic: {
          kind: 'user',
          mac: '52:54:00:00:00:01',
          subnet: '10.0.2.0/24',
          gateway: '10.0.2.2',
          nameServer: '10.0.2.3',
        },
        start: {
          kind: 'restore',
          statePath: '',
          memoryFd: 0,
          templateKey: '',
        },
      },
      { isolation: 'emulated', tscKhz: 1_000_000 },
    );
    const disk = args.flatMap((arg, index) => (arg === '-blockdev' ? [arg, args[index + 1] ?? ''] : []));
    const machine = ['-machine', 'microvm', '-accel', 'tcg', '-nodefaults', '-display', 'none', '-S'];
    const device = ['-device', `virtio-blk-device,drive=${ROOT_NODE},id=${ROOT_DEVICE}`];
    const monitor = ['-qmp', 'unix:qmp.sock,server=on,wait=off'];
    const qemu = spawn('qemu-system-x86_64', [...machine, ...disk, ...device, ...monitor], { cwd: dir });
    processes.push(qemu);
    const isGone = () => qemu.exitCode !== null;
    const qmp = await QmpClient.open(await connectUnixWhenReady(dir, 'qmp.sock', new AbortController().signal, isGone));
    const kill = async () => {
      const exit = once(qemu, 'exit');
      qemu.kill('SIGKILL');
      await exit;
    };
    return { qmp, kill };
  }

  it('the copied data is in the file when QEMU is killed right after the copy', async () => {
    const { qmp, kill } = await start();
    assert.equal(await new RootNodes(qmp).flatten(at('disk.qcow2'), FAST), true);
    await kill();
    assert.equal(contentOf([]), content);
  });

  it('the same for an overlay that was added meanwhile', async () => {
    const { qmp, kill } = await start();
    const nodes = new RootNodes(qmp);
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', at('next.qcow2'), '8M']);
    await nodes.stage(dir, undefined, at('next.qcow2'), LAYER);
    await nodes.switchTo(LAYER);
    assert.equal(await nodes.flatten(at('next.qcow2'), FAST), true);
    await kill();
    renameSync(at('next.qcow2'), at('disk.qcow2'));
    assert.equal(contentOf([]), content);
  });

  it('an agent that finds a flat chain, or a running copy, makes the result durable too', async () => {
    const { qmp, kill } = await start();
    const first = new RootNodes(qmp).flatten(at('disk.qcow2'), MIB);
    const hasJob = async () => ((await qmp.execute('query-block-jobs')) as unknown[]).length > 0;
    while (!(await hasJob()));
    const second = new RootNodes(qmp).flatten(at('disk.qcow2'), MIB);
    // QEMU answers commands in order. So if the copy still runs now, the second agent, which asked earlier, saw it
    // running too. At 1 MiB/s the copy takes long enough for that.
    assert.ok(await hasJob());
    await qmp.execute('block-job-set-speed', { device: 'flatten', speed: 0 });
    assert.deepEqual(await Promise.all([first, second]), [true, true]);
    assert.equal(await new RootNodes(qmp).flatten(at('disk.qcow2'), MIB), true);
    await kill();
    assert.equal(contentOf([]), content);
  });

  it('a copy stopped at its start or in the middle does no harm and can begin again', async () => {
    const { qmp, kill } = await start();
    const nodes = new RootNodes(qmp);
    const atOnce = nodes.flatten(at('disk.qcow2'), MIB);
    await nodes.stopFlatten();
    assert.equal(await atOnce, false);
    const later = nodes.flatten(at('disk.qcow2'), MIB);
    while (((await qmp.execute('query-block-jobs')) as unknown[]).length === 0);
    await nodes.stopFlatten();
    assert.equal(await later, false);
    assert.deepEqual(await qmp.execute('query-block-jobs'), []);
    assert.equal(await nodes.flatten(at('disk.qcow2'), FAST), true);
    await kill();
    assert.equal(contentOf([]), content);
  });
});
