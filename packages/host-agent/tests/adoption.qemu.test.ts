// Tests templates and clones with a real QEMU in the real jail, and how the next agent tells them from processes that
// only look like them. Needs root and the base image.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, type Hash } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { defaultCache, homePaths } from '@sandbar/contract/home.ts';
import type { Gateway } from '../src/gateway/gateway.ts';
import { openSession } from '../src/guest/channel.ts';
import type { GuestIdentity } from '../src/guest/guest.ts';
import { newVmId, type Vm } from '../src/hypervisor/driver.ts';
import { isAlive, processInfo } from '../src/hypervisor/process.ts';
import { QemuHypervisor } from '../src/hypervisor/qemu.ts';
import { RUN_FILES } from '../src/hypervisor/qemu-args.ts';
import { connectUnixWhenReady } from '../src/hypervisor/unix-socket.ts';
import { findMachineImage } from '../src/images/machine-image.ts';
import { closeInheritedDescriptors } from '../src/jail/inherited-descriptors.ts';
import { RootJail } from '../src/jail/root-jail.ts';
import { parseSubnet } from '../src/network/subnet.ts';
import { UserNetwork } from '../src/network/user-network.ts';
import { launchClone } from '../src/templates/clone.ts';
import { makeTemplate } from '../src/templates/make-template.ts';
import { type Shape, templateKey } from '../src/templates/shape.ts';
import type { Template } from '../src/templates/template-files.ts';
import { firstSession } from '../src/vms/first-session.ts';
import { VmHost } from '../src/vms/vm-host.ts';
import { startGateway } from './support/gateway.ts';
import { QEMU } from './support/jailed.ts';

const MEMORY_MB = 256;
const PATIENCE_MS = 60_000;
const MACHINE = '019a0000-0000-7000-8000-0000000000aa';
const IDENTITY: GuestIdentity = {
  machineId: MACHINE,
  hostname: 'clone',
  address: '10.200.0.9/16',
  gateway: '10.200.0.1',
  nameServers: ['10.200.0.3'],
  mac: '02:5b:0a:c8:00:09',
  mtu: 1500,
};
const log = { info() {}, warn() {} };

describe('adoption of QEMU', { skip: process.getuid?.() !== 0 }, () => {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-adopt-'));
  const paths = homePaths(home);
  let jail: RootJail;
  let guests: Gateway | undefined;
  let hypervisor: QemuHypervisor;
  let vms: VmHost;
  let template: Template;
  let machine: Vm;
  let pooled: Vm;
  /** The VM that became the template, and the command lines of all processes on the host while that VM booted. */
  let booted: { vmId: string; token: string; commands: string[] };
  const others: ChildProcess[] = [];

  // The open connections of the agent. A new agent first closes those of the old one, as the kernel would after a kill,
  // because QEMU's monitor accepts only one client at a time.
  const sockets = new Set<Socket>();
  const noteSocket = (message: unknown) => void sockets.add((message as { socket: Socket }).socket);
  const newAgent = async () => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
    await guests?.close();
    guests = await startGateway(home);
    jail = await RootJail.open({ home, programs: [QEMU] });
    const { run: runDir, runVms: recordsDir } = paths;
    hypervisor = new QemuHypervisor({ qemuPath: QEMU, isolation: 'emulated', jail, guests, runDir, recordsDir });
    vms = new VmHost(hypervisor, new UserNetwork(parseSubnet('10.200.0.0/16')), log);
  };
  const adopt = async () => {
    const found = await hypervisor.adopt();
    await vms.adopt(found, new Map());
    return new Map(found.map((vm) => [vm.vmId, vm]));
  };
  const clone = async (runDir: string) => {
    const vm = await launchClone(vms, template, { diskPath: join(home, 'pool', `${newVmId()}.qcow2`), runDir });
    const guest = await firstSession(vm, AbortSignal.timeout(PATIENCE_MS));
    return { vm, guest };
  };
  const recordPath = (vmId: string) => join(paths.runVms, `${vmId}.json`);
  /** Whether a VM has been started so far that its record has the pid of its process. */
  const hasProcess = () =>
    readdirSync(paths.runVms).some((name) => /"pid":\d/.test(readFileSync(join(paths.runVms, name), 'utf8')));
  const tokenOf = (vmId: string): string => JSON.parse(readFileSync(recordPath(vmId), 'utf8')).channelToken;

  before(async () => {
    subscribe('net.client.socket', noteSocket);
    closeInheritedDescriptors();
    for (const dir of [paths.runVms, paths.runPool, paths.runTemplates, paths.runMachines, paths.pool])
      mkdirSync(dir, { recursive: true, mode: 0o700 });
    await newAgent();
    const image = await findMachineImage(defaultCache(process.env, true), 'base');
    const diskGb = Math.ceil(statSync(image.rootfsPath).size / 2 ** 30);
    const shape: Shape = { image, layerPaths: [], vcpus: 1, memoryMb: MEMORY_MB, diskGb };
    const name = newVmId();
    const place = {
      templatesDir: paths.templates,
      runDir: join(paths.runTemplates, name),
      name,
      patience: 4,
      settleMs: 0,
      abort: new AbortController().signal,
    };
    const making = makeTemplate(vms, place, templateKey(shape, hypervisor.fingerprint), shape);
    while (!hasProcess()) await new Promise((resolve) => setImmediate(resolve));
    const [record = ''] = readdirSync(paths.runVms);
    booted = { vmId: record.slice(0, 12), token: tokenOf(record.slice(0, 12)), commands: commandsOfHost() };
    template = await making;
  });
  after(async () => {
    unsubscribe('net.client.socket', noteSocket);
    for (const child of others) child.kill('SIGKILL');
    for (const vm of vms.running()) await vms.discard(vm);
    closeSync(template.restore.memoryFd);
    await guests?.close();
    await jail.remove();
    rmSync(home, { recursive: true });
  });

  it('making a template leaves nothing but the template', () => {
    assert.deepEqual(readdirSync(paths.templates), [template.key]);
    for (const dir of [paths.runTemplates, paths.runVms]) assert.deepEqual(readdirSync(dir), []);
    assert.deepEqual([jail.listVmIds(), vms.knownIds().size], [[], 0]);
  });

  it('a state that loads and never runs, as a QEMU that was taken over can save it, does not hold a launch (ISO-5, CTL-4)', {
    timeout: 60_000,
  }, async () => {
    const statePath = join(home, 'paused.state');
    const state = readFileSync(template.restore.statePath, 'latin1');
    assert.ok(state.includes('running\0'));
    writeFileSync(statePath, state.replaceAll('running\0', 'paused\0\0'), 'latin1');
    const launch = (patience: number, abort: AbortSignal) => {
      assert(guests);
      const { run: runDir, runVms: recordsDir } = paths;
      const options = { qemuPath: QEMU, isolation: 'emulated', jail, guests, runDir, recordsDir, patience } as const;
      const one = new QemuHypervisor(options);
      const host = new VmHost(one, new UserNetwork(parseSubnet('10.200.0.0/16')), log);
      const paused = { ...template, restore: { ...template.restore, statePath, abort } };
      const place = { diskPath: join(home, 'pool', `${newVmId()}.qcow2`), runDir: join(paths.runMachines, MACHINE) };
      return launchClone(host, paused, place);
    };
    const failure = { code: 'host_unavailable', message: /state could not be restored/ };
    await assert.rejects(launch(0.02, new AbortController().signal), failure);
    const destroying = new AbortController();
    const launching = assert.rejects(launch(1000, destroying.signal), failure);
    while (!hasProcess()) await new Promise((resolve) => setImmediate(resolve));
    destroying.abort();
    await launching;
    assert.deepEqual([jail.listVmIds(), readdirSync(paths.runVms), readdirSync(paths.runMachines)], [[], [], []]);
  });

  it('a VM that waits without its state runs on begin, although the host told it to stop and go on before (RES-1)', async () => {
    const waiting = { ...template, restore: { ...template.restore, waits: true } as const };
    const name = newVmId();
    const place = { diskPath: join(home, 'pool', `${name}.qcow2`), runDir: join(paths.runPool, name) };
    const vm = await launchClone(vms, waiting, place);
    try {
      await vm.hold();
      await vm.letGo();
      assert.equal(await vm.isPaused(), false, 'the next agent takes it for no clone of the pool');
      vm.moveTo(join(paths.runMachines, name));
      await vm.begin();
      const guest = await firstSession(vm, AbortSignal.timeout(PATIENCE_MS));
      await guest.warmUp('shell');
    } finally {
      await vms.discard(vm);
    }
    rmSync(place.diskPath);
    assert.deepEqual([jail.listVmIds(), readdirSync(paths.runVms), readdirSync(paths.runMachines)], [[], [], []]);
  });

  it("two clones run, work and write; the template's memory stays as it was, and no descriptor of theirs can change it (ISO-4)", async () => {
    const before = hashOf(template.restore.memoryFd);
    const one = await clone(join(paths.runMachines, MACHINE));
    const two = await clone(join(paths.runPool, newVmId()));
    machine = one.vm;
    pooled = two.vm;
    await one.guest.setIdentity(IDENTITY);
    for await (const _ of await one.guest.startJob(
      'job',
      { command: 'head -c 8M /dev/urandom > /dev/shm/x', timeout_sec: 60 },
      1024,
    ));
    for (let round = 0; round < 3; round++) await two.guest.warmUp('shell');
    await two.vm.pause();
    for (const vm of [machine, pooled]) {
      const fds = readdirSync(`/proc/${vm.pid}/fd`).map((fd) => `/proc/${vm.pid}/fd/${fd}`);
      const memories = fds.filter((fd) => readlinkSync(fd).startsWith('/memfd:sandbar-template'));
      assert.ok(memories.length > 0, 'QEMU holds its memory file');
      for (const path of memories) {
        const fd = openSync(path, constants.O_RDWR);
        assert.throws(() => writeSync(fd, 'x', 0), { code: 'EPERM' });
        assert.equal(hashOf(fd), before);
        closeSync(fd);
      }
    }
    one.guest.close();
    two.guest.close();
  });

  it('the token of a machine that boots is in no list of processes (RES-14)', () => {
    assert.ok(booted.commands.some((command) => command.includes(booted.vmId)));
    assert.ok(!booted.commands.some((command) => command.includes(booted.token)));
  });

  it('two clones have tokens of their own, which are in no list of processes (RES-14)', () => {
    const tokens = [machine, pooled].map(({ vmId }) => tokenOf(vmId));
    assert.equal(new Set([...tokens, booted.token]).size, 3);
    const commands = commandsOfHost();
    assert.ok(commands.some((command) => command.includes(machine.vmId)));
    for (const token of tokens) assert.ok(!commands.some((command) => command.includes(token)));
  });

  it("a machine that is itself answers to its own token only, and not to another machine's (RES-14)", async () => {
    const connectAs = async (token: string, patienceMs: number) => {
      const giveUp = AbortSignal.timeout(patienceMs);
      const socket = await connectUnixWhenReady(machine.runDir, RUN_FILES.guest, giveUp, () => false);
      await openSession(socket, token, giveUp);
      socket.destroy();
    };
    await assert.rejects(connectAs(tokenOf(pooled.vmId), 500), /did not answer in time/);
    await connectAs(tokenOf(machine.vmId), PATIENCE_MS);
  });

  it('another agent finds both VMs again, the one that was renamed too, and the guest answers (CTL-3)', async () => {
    const moved = join(paths.runMachines, '019a0000-0000-7000-8000-0000000000bb');
    machine.moveTo(moved);
    await newAgent();
    const found = await adopt();
    assert.deepEqual([...found.keys()].sort(), [machine.vmId, pooled.vmId].sort());
    for (const old of [machine, pooled]) {
      const vm = found.get(old.vmId) ?? assert.fail();
      assert.deepEqual([vm.pid, vm.runDir, vm.templateKey], [old.pid, old.runDir, template.key]);
      if (old === machine) machine = vm;
      else pooled = vm;
    }
    assert.deepEqual([await machine.isPaused(), await pooled.isPaused()], [false, true]);
    const guest = await firstSession(machine, AbortSignal.timeout(PATIENCE_MS));
    assert.deepEqual(
      (await guest.listJobs()).map(({ id }) => id),
      ['job'],
    );
    guest.close();
  });

  it('a program that is only called QEMU, and a QEMU that is not ours, live on though records speak of them (CTL-3)', async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'sandbar-decoy-'));
    const decoy = join(elsewhere, 'qemu-system-decoy');
    copyFileSync('/bin/sleep', decoy, constants.COPYFILE_FICLONE);
    const start = (program: string, args: string[], cwd: string) => {
      const child = spawn(program, args, { cwd, stdio: 'ignore' });
      others.push(child);
      return child;
    };
    const idle = '-nodefaults -no-user-config -display none -machine none -S'.split(' ');
    // A process with QEMU's name, a QEMU that works in another folder, and a process in our folder that is no QEMU.
    const children = [
      start(decoy, ['1000'], elsewhere),
      start(QEMU, idle, elsewhere),
      start('/bin/sleep', ['1000'], paths.runPool),
    ];
    const infos = children.map(({ pid }) => processInfo(pid ?? 0) ?? assert.fail('it does not run'));
    writeFileSync(join(elsewhere, 'kept'), 'not ours');
    for (const [index, { pid, startTicks }] of infos.entries()) {
      const vmId = `${index}`.padStart(12, 'f');
      const record = {
        vmId,
        uid: null,
        runDir: elsewhere,
        channelToken: '',
        templateKey: null,
        process: { pid, startTicks },
      };
      writeFileSync(recordPath(vmId), JSON.stringify(record));
    }
    await newAgent();
    const found = await adopt();
    assert.deepEqual([...found.keys()].sort(), [machine.vmId, pooled.vmId].sort());
    for (const info of infos) assert.ok(isAlive(info), `${info.executable} was ended`);
    assert.ok(existsSync(join(elsewhere, 'kept')), 'a folder that is not ours was removed');
    assert.equal(readdirSync(paths.runVms).length, 2);
    rmSync(elsewhere, { recursive: true });
    machine = found.get(machine.vmId) ?? assert.fail();
    pooled = found.get(pooled.vmId) ?? assert.fail();
  });

  it('a record with another start time, or a uid that is no VM has, is not believed, and keeps no agent from starting (CTL-3)', async () => {
    const record = JSON.parse(readFileSync(recordPath(pooled.vmId), 'utf8'));
    const { pid } = pooled;
    writeFileSync(recordPath(pooled.vmId), JSON.stringify({ ...record, uid: 1 }));
    writeFileSync(
      recordPath('eeeeeeeeeeee'),
      JSON.stringify({ ...record, vmId: 'eeeeeeeeeeee', uid: null, process: { pid: machine.pid, startTicks: '1' } }),
    );
    writeFileSync(join(paths.runVms, 'dddddddddddd.json'), '{"half":');
    writeFileSync(join(paths.runVms, 'dddddddddddd.json.partial'), '{"ha');
    await newAgent();
    const found = await adopt();
    assert.deepEqual([...found.keys()], [machine.vmId]);
    machine = found.get(machine.vmId) ?? assert.fail();
    assert.equal(processInfo(pid), undefined, 'a VM of ours that nobody can own ends');
    assert.deepEqual(readdirSync(paths.runVms), [`${machine.vmId}.json`]);
    assert.deepEqual(readdirSync(paths.runPool), []);
    assert.deepEqual(jail.listVmIds(), [machine.vmId]);
  });

  it('a QEMU whose record was never finished ends, by its control group (CTL-3)', async () => {
    const { vm } = await clone(join(paths.runPool, newVmId()));
    rmSync(recordPath(vm.vmId));
    await newAgent();
    const found = await adopt();
    assert.deepEqual([...found.keys()], [machine.vmId]);
    assert.equal(processInfo(vm.pid), undefined);
    assert.deepEqual(jail.listVmIds(), [machine.vmId]);
    machine = found.get(machine.vmId) ?? assert.fail();
  });

  it('a device state that cannot be saved is an error with a reason', async () => {
    await assert.rejects(machine.saveDevices(join(home, 'no-such-folder', 'state')), /ENOENT/);
  });

  it('a clone whose guest reboots ends as rebooted, so it is booted cold and not restored again', async () => {
    const { vm, guest } = await clone(join(paths.runPool, newVmId()));
    await guest.setIdentity({ ...IDENTITY, address: '10.200.0.10/16', mac: '02:5b:0a:c8:00:0a' });
    guest.startJob('reboot', { command: 'echo b > /proc/sysrq-trigger', timeout_sec: 60 }, 1024).catch(() => {});
    assert.equal((await vm.exited).cause, 'rebooted');
    await vms.discard(vm);
    assert.ok(!existsSync(vm.runDir));
  });
});

/** Returns the command lines of all processes of this host. */
function commandsOfHost(): string[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => readIfThere(`/proc/${pid}/cmdline`));
}

/** Returns the content of a file, or an empty text when the process that it belongs to has ended. */
function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function hashOf(fd: number): string {
  const hash: Hash = createHash('sha256');
  const chunk = Buffer.alloc(4 * 2 ** 20);
  for (let at = 0; at < MEMORY_MB * 2 ** 20; at += chunk.length) {
    readSync(fd, chunk, 0, chunk.length, at);
    hash.update(chunk);
  }
  return hash.digest('hex');
}
