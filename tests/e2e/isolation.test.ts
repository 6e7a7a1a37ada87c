// A guest that breaks out into its QEMU process must gain nothing: the process has a uid of its own and no
// capabilities, sees only its own files, and its CPU, memory and process count are limited. These tests read /proc and
// the control groups of running machines.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { createClone } from './support/clones.ts';
import { bytesBelow, cgroupFile, descriptorsOf, IS_ROOT, run, runDirOf, threadStatus, vmOf } from './support/host.ts';
import {
  call,
  destroyMachine,
  expectStatus,
  getMachine,
  HOME,
  pidOf,
  qemuPidOf,
  residentMb,
  sh,
  startExec,
  until,
  waitForExec,
} from './support/service.ts';

const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };
const MIB = 1024 * 1024;

describe('isolation of machines', { skip: !IS_ROOT && 'there is no jail without root' }, () => {
  let machine: Machine;
  let other: Machine;
  before(async () => {
    machine = await createClone(SMALL);
    other = await createClone(SMALL);
  });
  after(() => Promise.all([machine, other].map(({ id }) => destroyMachine(id))));

  it('a machine says how it is isolated (ISO-1)', async () => {
    assert.match((await getMachine(machine.id)).isolation, /^(kvm|emulated)$/);
  });

  it('every thread of QEMU is of a uid and gid of its own, without groups, capabilities or a way to new ones (ISO-2)', () => {
    const uids = [machine, other].map(({ id }) => {
      const pid = qemuPidOf(id);
      const uid = String(vmOf(id).uid);
      assert.ok(Number(uid) >= 0x6000_0000, uid);
      assert.ok(threadStatus(pid, 'Name').length > 1, 'vCPUs are threads');
      for (const field of ['Uid', 'Gid'])
        for (const ids of threadStatus(pid, field)) assert.deepEqual(new Set(ids.split('\t')), new Set([uid]), field);
      const is = (field: string, wanted: RegExp) => {
        for (const value of threadStatus(pid, field)) assert.match(value, wanted, field);
      };
      is('Groups', /^$/);
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) is(set, /^0{16}$/);
      is('NoNewPrivs', /^1$/);
      is('Seccomp', /^2$/);
      return uid;
    });
    assert.notEqual(uids[0], uids[1]);
  });

  it('a clone takes its state as a descriptor, under the whole sandbox (ISO-3)', () => {
    const argv = readFileSync(`/proc/${qemuPidOf(machine.id)}/cmdline`, 'utf8').split('\0');
    const after = (name: string) => argv[argv.indexOf(name) + 1];
    assert.equal(after('-incoming'), 'defer');
    assert.equal(after('-sandbox'), 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny');
    assert.deepEqual(
      argv.filter((argument) => /exec:|^file:|tcp|-runas|-kernel|0\.0\.0\.0/.test(argument)),
      [],
    );
  });

  it('no clone can write the memory of its template, through any descriptor (ISO-4)', async () => {
    const pid = qemuPidOf(machine.id);
    const memories = [...descriptorsOf(pid)].filter(([, what]) => what.startsWith('/memfd:'));
    assert.ok(memories.length > 0, 'its memory is a sealed file');
    const file = `/proc/${pid}/fd/${memories[0]?.[0]}`;
    const hash = hashOf(file);
    for (const [number] of memories) {
      // The test runs as root, which may write to any file, so only the seal can make the write fail.
      const fd = openSync(`/proc/${pid}/fd/${number}`, 'r+');
      try {
        assert.throws(() => writeSync(fd, 'x', 0), { code: 'EPERM' });
      } finally {
        closeSync(fd);
      }
    }
    for (const { id } of [machine, other])
      assert.equal((await sh(id, 'head -c 60000000 /dev/urandom > /dev/shm/mine && rm /dev/shm/mine')).code, 0);
    assert.equal(hashOf(file), hash);
    assert.equal(vmOf(machine.id).templateKey, vmOf(other.id).templateKey, 'both are clones of the same template');
  });

  it('its root is its own, with its own files and no others (ISO-5)', async () => {
    const pid = qemuPidOf(machine.id);
    const root = `/proc/${pid}/root`;
    const namespaces = (of: number | 'self') =>
      ['mnt', 'pid', 'ipc', 'uts'].map((kind) => statSync(`/proc/${of}/ns/${kind}`).ino);
    for (const [at, inode] of namespaces(pid).entries()) {
      assert.notEqual(inode, namespaces('self')[at]);
      assert.notEqual(inode, namespaces(qemuPidOf(other.id))[at]);
    }
    const hidden = [
      '/root',
      '/home',
      '/etc/passwd',
      '/etc/shadow',
      '/run',
      '/sys',
      '/bin/sh',
      '/usr/bin/bash',
      '/dev/vda',
      '/dev/mem',
    ];
    const ofService = [
      'postgres',
      'credentials.json',
      'secret',
      'volumes',
      'snapshots',
      'layers',
      'templates',
      'run/host-agent.sock',
      'run/vms',
    ];
    for (const path of [...hidden, ...ofService.map((name) => join(HOME, name))])
      assert.equal(existsSync(root + path), false, path);
    // A clone made for this request has its disk in the machine's folder. A pooled clone has it in the pool. In either
    // case no other file below machines/ may be visible.
    const disks = join(root, HOME, 'machines');
    const shown = existsSync(disks) ? readdirSync(disks, { recursive: true }).map(String) : [];
    assert.ok(
      shown.every((path) => path === machine.id || /^[^/]+\/disk\.qcow2(\.clone)?$/.test(path)),
      shown.join(' '),
    );
    // QEMU sees its own run directory, maybe under the name that it had in the pool. It must not see any name with the
    // id of another machine.
    const seen = readdirSync(join(root, HOME, 'run'), { recursive: true }).map(String);
    const others = readdirSync(join(HOME, 'run/machines')).filter((id) => id !== machine.id);
    assert.ok(others.includes(other.id));
    assert.equal(
      seen.some((path) => others.some((id) => path.includes(id))),
      false,
      seen.join(' '),
    );
    assert.equal(seen.filter((path) => path.endsWith('qmp.sock')).length, 1, 'QEMU sees only its own machine');
    const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.split(' '));
    const writable = mounts.filter((mount) => mount[5]?.startsWith('rw')).map((mount) => mount[4] ?? '');
    const own = writable.filter((path) => path.startsWith(HOME));
    assert.equal(own.length, 2, 'its disk and its run directory');
    assert.deepEqual(
      writable
        .filter((path) => !own.includes(path))
        .filter((path) => !/^\/(proc|dev\/(null|urandom|net\/tun|kvm))$/.test(path)),
      [],
    );
  });

  it('its environment has one setting and its descriptors are of the few kinds that it needs (ISO-5)', () => {
    const pid = qemuPidOf(machine.id);
    assert.equal(readFileSync(`/proc/${pid}/environ`, 'utf8'), 'MALLOC_ARENA_MAX=1\0');
    const expected = [
      /^\/dev\/(null|urandom|net\/tun|kvm|vhost-net)$/,
      /^socket:/,
      /^anon_inode:(\[eventfd\]|\[io_uring\]|\[eventpoll\]|\[signalfd\]|\[timerfd\]|kvm-.*)$/,
      /^\/memfd:sandbar-template \(deleted\)$/,
      new RegExp(`^${runDirOf(machine.id)}/qemu.log$`),
      /\/rootfs\.img$/,
      new RegExp(`^${HOME}/(pool/[0-9a-f]{12}|machines/${machine.id}/disk)\\.qcow2(\\.clone)?$`),
    ];
    const strange = [...descriptorsOf(pid).values()].filter((what) => !expected.some((kind) => kind.test(what)));
    assert.deepEqual(strange, []);
  });

  it("its sockets are its own: another machine's uid does not open them, also from inside its folder (ISO-7)", () => {
    const folder = runDirOf(machine.id);
    assert.equal(statSync(folder).mode & 0o777, 0o700);
    const connect =
      'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); print connect(S, sockaddr_un($ARGV[0])) ? "open" : "$!"';
    const asUid = (uid: number, socket: string) => {
      const ids = ['--reuid', String(uid), '--regid', String(uid), '--clear-groups'];
      // `run` enters the folder as root, before setpriv changes the uid. So the socket's own mode must refuse the
      // connection, not the mode of a folder above it.
      return run('setpriv', [...ids, 'perl', '-e', connect, socket], { cwd: folder }).stdout;
    };
    for (const socket of ['qmp.sock', 'guest.sock']) {
      assert.equal(statSync(join(folder, socket)).mode & 0o777, 0o600);
      assert.equal(asUid(vmOf(other.id).uid, socket), 'Permission denied');
      assert.equal(asUid(65534, socket), 'Permission denied');
    }
    assert.equal(asUid(vmOf(machine.id).uid, 'qmp.sock'), 'open', 'the uid of the machine itself can open it');
  });

  it('CPU, memory and processes are limited by its own control group (ISO-6)', () => {
    const read = (...file: Parameters<typeof cgroupFile>) => readFileSync(cgroupFile(...file), 'utf8').trim();
    const memory = Number(read(machine.id, 'memory', 'memory.limit_in_bytes', 'memory.max'));
    assert.ok(memory >= 256 * MIB && memory <= 1024 * MIB, String(memory));
    assert.match(read(machine.id, 'cpu', 'cpu.cfs_quota_us', 'cpu.max'), /^[1-9]\d+/);
    assert.ok(Number(read(machine.id, 'pids', 'pids.max', 'pids.max')) < 1000);
    for (const controller of ['cpu', 'memory', 'pids'] as const) {
      const members = read(machine.id, controller, 'cgroup.procs', 'cgroup.procs').split('\n').map(Number);
      assert.ok(members.includes(qemuPidOf(machine.id)), controller);
      assert.equal(members.includes(qemuPidOf(other.id)), false, controller);
    }
  });

  it('what a guest prints on its console fills nothing (ISO-6)', async () => {
    // Write only 1 MiB, because an emulated serial port already takes a second for that. It is sixteen times what the
    // host keeps.
    const resident = residentMb(qemuPidOf(machine.id));
    const { code } = await sh(machine.id, `head -c ${MIB} /dev/zero | tr '\\0' x > /dev/console`);
    assert.equal(code, 0);
    assert.ok(bytesBelow(runDirOf(machine.id)) < 64 * 1024, `${bytesBelow(runDirOf(machine.id))} bytes`);
    assert.ok(residentMb(qemuPidOf(machine.id)) < resident + 32);
  });

  it('a QEMU that outgrows its memory is killed alone, and its machine says why (ISO-6, CTL-6)', async () => {
    const doomed = await createClone(SMALL);
    try {
      const job = await startExec(doomed.id, { command: 'sleep 1000' });
      const used = Number(
        readFileSync(cgroupFile(doomed.id, 'memory', 'memory.usage_in_bytes', 'memory.current'), 'utf8'),
      );
      writeFileSync(cgroupFile(doomed.id, 'memory', 'memory.limit_in_bytes', 'memory.max'), String(used + 16 * MIB));
      // The job sleeps first, so that the machine is still alive to answer the request that starts the job.
      const eater = await startExec(doomed.id, { command: 'sleep 1; head -c 150000000 /dev/urandom > /dev/shm/much' });
      await until('error', async () => (await getMachine(doomed.id)).state === 'error');
      assert.match((await getMachine(doomed.id)).error ?? '', /memory limit/);
      for (const { id } of [job, eater]) assert.equal((await waitForExec(doomed.id, id)).status, 'lost');
      assert.equal((await sh(machine.id, 'echo well')).stdout, 'well\n');
    } finally {
      await destroyMachine(doomed.id);
    }
  });

  for (const [what, script] of [
    ['garbage without end', 'noise = os.urandom(65536)\nwhile True: os.write(fd, noise)'],
    [
      "the channel's greeting and frames without end",
      // The host opens each session with a greeting, and accepts the session when the guest echoes it. A thread of this
      // program echoes every greeting that it reads; the guest agent reads the same port and takes the others.
      // Meanwhile the program sends HTTP/2 PING frames without end. Each write has 1900 frames of 17 bytes. That is
      // less than 32 KiB, the most that the port takes in one write, so no frame is cut.
      `import threading
greeting = b"sandbar-host-opens-a-new-session"
def answer():
  while True:
    said = os.read(fd, 65536)
    at = said.find(greeting)
    if at >= 0: os.write(fd, said[at + 32:at + 72] + b"\\0\\0\\0\\x04\\0\\0\\0\\0\\0")
threading.Thread(target=answer).start()
frames = (b"\\0\\0\\x08\\x06\\0\\0\\0\\0\\0" + b"12345678") * 1900
while True: os.write(fd, frames)`,
    ],
  ] as const) {
    it(`a guest that takes its agent's channel and sends ${what} harms only itself (ISO-10, ISO-11)`, async () => {
      const hostile = await createClone(SMALL);
      const agent = pidOf('host-agent');
      try {
        const residentBefore = residentMb(agent);
        // The port can be opened only once, and the guest agent has it open, so the program copies the agent's
        // descriptor with pidfd_getfd(2). Other descriptors of the agent may close during the search, so target()
        // ignores missing ones. The program sleeps first, so that the agent can answer the request that starts this
        // job.
        const take = `import ctypes, os, time
time.sleep(1)
libc = ctypes.CDLL(None)
def target(f):
  try: return os.readlink("/proc/1/fd/" + f)
  except FileNotFoundError: return ""
port = next(int(f) for f in os.listdir("/proc/1/fd") if "vport" in target(f))
fd = libc.syscall(438, libc.syscall(434, 1, 0), port, 0)
os.set_blocking(fd, True)
${script}`;
        await startExec(hostile.id, { argv: ['python3', '-c', take] });
        let resident = 0;
        // The host agent ends each such session and opens a new one, after longer and longer pauses.
        await until('the host agent has ended several such sessions', () => {
          resident = Math.max(resident, residentMb(agent));
          return brokenSessionsOf(hostile.id) >= 4;
        });
        assert.equal((await sh(other.id, 'echo well')).stdout, 'well\n');
        assert.equal(pidOf('host-agent'), agent, 'the same agent all the time');
        assert.ok(resident < residentBefore + 128, `${residentBefore} MB, then ${resident} MB`);
        // The hostile machine may answer or refuse; only the host and the other machines matter here.
        const { status } = await call('POST', `/v1/machines/${hostile.id}/execs`, { command: 'true' });
        assert.ok([201, 409, 503].includes(status), `a job: ${status}`);
        assert.equal((await getMachine(other.id)).state, 'running');
      } finally {
        await expectStatus(200, 'DELETE', `/v1/machines/${hostile.id}`);
      }
    });
  }
});

/**
 * Counts in the host agent's log how many sessions with the machine's guest agent failed: at the greeting, or later
 * while the host agent read the output of the machine's only job.
 */
function brokenSessionsOf(machineId: string): number {
  const lines = readFileSync(join(HOME, 'logs/host-agent.log'), 'utf8').split('\n');
  return lines.filter(
    (line) => line.includes(machineId) && /no session with the guest agent|a job could not be followed/.test(line),
  ).length;
}

/** The SHA-256 of a whole file. It may be a file without a name, given as /proc/PID/fd/N. */
function hashOf(file: string): string {
  const hash = createHash('sha256');
  const chunk = Buffer.alloc(4 * MIB);
  const fd = openSync(file, 'r');
  for (let at = 0, length = 1; length > 0; at += length) {
    length = readSync(fd, chunk, 0, chunk.length, at);
    hash.update(chunk.subarray(0, length));
  }
  closeSync(fd);
  return hash.digest('hex');
}
