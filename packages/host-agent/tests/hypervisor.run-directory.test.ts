// Tests what the agent does in a run directory while a compromised QEMU, which owns that directory, changes it.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { MAX_STATE_BYTES } from '../src/hypervisor/device-state.ts';
import { processInfo } from '../src/hypervisor/process.ts';
import { QemuHypervisor } from '../src/hypervisor/qemu.ts';
import { openLog } from '../src/hypervisor/qemu-log.ts';
import { QemuVm } from '../src/hypervisor/qemu-vm.ts';
import { NoJail } from '../src/jail/no-jail.ts';
import { openMonitor } from './support/fake-monitor.ts';

const isRoot = process.getuid?.() === 0;
/** A uid that no account of the host has. */
const VM_UID = 0x7123_4567;
const ROUNDS = 20;

/** A Perl program that replaces every new entry of its working directory by a symlink to its argument. */
const SWAP = `$| = 1; print "swaps\\n"; while (1) {
  opendir(D, "."); for (grep { !/^\\.\\.?$/ && !-l } readdir D) { unlink($_); symlink($ARGV[0], $_) } closedir D }`;

const NO_GUESTS = { connect: () => assert.fail('no session is opened') };

describe('run directory of a compromised QEMU', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-run-directory-'));
  const runDir = join(dir, 'vm');
  const secret = join(dir, 'secret');
  const ends: (() => void)[] = [];
  const swappers: ChildProcess[] = [];
  after(async () => {
    for (const end of ends) end();
    for (const swapper of swappers) {
      // Look only now: a process may have ended while this waited for another one.
      if (swapper.exitCode !== null || swapper.signalCode !== null) continue;
      const exit = once(swapper, 'exit');
      swapper.kill('SIGKILL');
      await exit;
    }
    rmSync(dir, { recursive: true });
  });
  beforeEach(() => {
    rmSync(runDir, { recursive: true, force: true });
    mkdirSync(runDir, { mode: 0o700 });
    rmSync(secret, { force: true });
    writeFileSync(secret, 'root only', { mode: 0o600 });
  });

  /** Returns a VM whose QEMU calls `save` with the path at which it should write its device state. */
  async function newVm(name: string, save: (path: string) => void): Promise<QemuVm> {
    const { qmp, close } = await openMonitor(dir, name, ({ execute, arguments: args, id }, qemu) => {
      if (execute === 'xen-save-devices-state') save(join(runDir, String(args?.filename)));
      qemu.write(`{"return": {"status": "failed"}, "id": ${id}}\n`);
    });
    ends.push(close);
    const record = { vmId: '0123456789ab', uid: VM_UID, runDir, channelToken: '', templateKey: null, process: null };
    const owner = { moved() {}, setBackground() {}, ended: async () => {}, memoryKills: () => 0 };
    return new QemuVm(processInfo(process.pid) ?? assert.fail(), qmp, record, owner, NO_GUESTS);
  }

  it('its links never make root change or read another file, however fast it swaps them (RES-8)', {
    skip: !isRoot,
  }, async () => {
    chownSync(runDir, VM_UID, VM_UID);
    chmodSync(dir, 0o711);
    const ids = ['--reuid', String(VM_UID), '--regid', String(VM_UID), '--clear-groups'];
    const swapper = spawn('setpriv', [...ids, 'perl', '-e', SWAP, secret], { cwd: runDir });
    swappers.push(swapper);
    await once(swapper.stdout, 'data');
    const vm = await newVm('swap.sock', (path) => {
      try {
        writeFileSync(path, 'device state', { flag: 'wx' });
      } catch {
        // The swapper has already put a symlink at this path.
      }
    });
    for (let round = 0; round < ROUNDS; round++) {
      for (const name of readdirSync(runDir)) rmSync(join(runDir, name));
      const state = join(dir, `state-${round}`);
      await vm.saveDevices(state).catch(() => {});
      const { mode, uid } = statSync(secret);
      assert.deepEqual([mode & 0o777, uid, readFileSync(secret, 'utf8')], [0o600, 0, 'root only']);
      if (existsSync(state)) assert.doesNotMatch(readFileSync(state, 'utf8'), /root only/);
    }
  });

  it('a device state that is endless, a symlink, a pipe or a folder is refused, and nothing is kept (RES-8)', async () => {
    let plant: (path: string) => void = () => {};
    const vm = await newVm('plant.sock', (path) => plant(path));
    const state = join(dir, 'state');
    const plants: [(path: string) => void, RegExp][] = [
      [(path) => writeFileSync(path, '') ?? truncateSync(path, MAX_STATE_BYTES + 1), /not what the agent has put/],
      [(path) => symlinkSync(secret, path), /ELOOP/],
      [(path) => void spawnSync('mkfifo', [path]), /not what the agent has put/],
      [(path) => void mkdirSync(join(path, 'folder'), { recursive: true }), /not what the agent has put/],
      [() => {}, /ENOENT/],
    ];
    for (const [next, refusal] of plants) {
      plant = next;
      await assert.rejects(vm.saveDevices(state), refusal);
      assert.ok(!existsSync(state));
    }
    assert.ok(readdirSync(runDir).every((name) => statSync(join(runDir, name)).isDirectory()));
    plant = (path) => writeFileSync(path, 'device state');
    await vm.saveDevices(state);
    assert.equal(readFileSync(state, 'utf8'), 'device state');
  });

  it('what an earlier QEMU planted in the place of its log is not opened (RES-8)', async () => {
    const log = join(runDir, 'qemu.log');
    spawnSync('mkfifo', [log]);
    // A pipe that has a reader can be opened for writing, so give it one: then the open itself does not fail.
    const reader = spawn('cat', [log]);
    swappers.push(reader);
    await once(reader, 'spawn');
    assert.throws(() => openLog(runDir), /not a log file|ENXIO/);
    rmSync(log);
    for (const plant of [() => symlinkSync(secret, log), () => linkSync(secret, log), () => void mkdirSync(log)]) {
      plant();
      assert.throws(() => openLog(runDir));
      rmSync(log, { recursive: true });
    }
    assert.equal(readFileSync(secret, 'utf8'), 'root only');
  });

  it('a launch whose state file is missing leaves no descriptor open', async () => {
    const recordsDir = join(dir, 'records');
    mkdirSync(recordsDir, { recursive: true });
    const options = { qemuPath: '/bin/true', isolation: 'emulated', runDir: dir, recordsDir } as const;
    const hypervisor = new QemuHypervisor({ ...options, jail: new NoJail(dir), guests: NO_GUESTS });
    const restore = { statePath: join(dir, 'no state'), memoryFd: 0, templateKey: '' };
    const launch = () =>
      hypervisor.launch({
        vmId: '0123456789ab',
        vcpus: 1,
        memoryMb: 8,
        diskPath: '/disk',
        imagePath: '/image',
        layerPaths: [],
        runDir,
        nic: { kind: 'user', mac: '', subnet: '', gateway: '', nameServer: '' },
        start: { kind: 'restore', ...restore },
      });
    const open = () => readdirSync('/proc/self/fd').length;
    const before = open();
    await assert.rejects(launch(), /no state/);
    assert.equal(open(), before);
  });
});
