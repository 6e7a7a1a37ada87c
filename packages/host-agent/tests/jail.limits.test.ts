// Tests the limits of a VM's host resources, and the clean-up after the VM. With the cgroup version of this kernel the
// limits are really reached. For the other version, the test checks which files are written.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { diskOf } from '../src/jail/block-device.ts';
import { openCgroups } from '../src/jail/cgroup.ts';
import { deviceNumbers } from '../src/jail/device-nodes.ts';
import { homeId } from '../src/network/names.ts';
import { JailFixture, PERL } from './support/jailed.ts';

const isRoot = process.getuid?.() === 0;
const CGROUP_ROOT = '/sys/fs/cgroup';
const isVersion1 = !existsSync(`${CGROUP_ROOT}/cgroup.controllers`);

/** The limits of a VM with 16 MiB of memory. The jail adds 256 MiB for QEMU itself. */
const SMALL = { vcpus: 1, memoryMb: 16, fileBytes: 2 ** 30 };

describe('jail limits', { skip: !isRoot }, () => {
  let fixture: JailFixture;
  before(async () => {
    fixture = await JailFixture.open();
    assert.deepEqual(fixture.jail.lacks, []);
  });
  after(() => fixture.close());

  /** Reads a limit of a VM's group. The two names are those of cgroup version 1 and 2. */
  function readLimit(vmId: string, controller: string, [file1, file2]: [string, string]): string {
    const group = join(CGROUP_ROOT, isVersion1 ? controller : '', `sandbar-${homeId(fixture.home)}`, vmId);
    return readFileSync(join(group, isVersion1 ? file1 : file2), 'utf8').trim();
  }

  it('a process that takes more memory than its VM may have is killed, and its neighbour lives (ISO-6)', async () => {
    const idle = 'print "runs\\n"; sleep 1000';
    const neighbour = await fixture.perl(idle);
    await neighbour.printed(/runs/);
    const limits = { vcpus: 1, memoryMb: 16, fileBytes: 2 ** 30 };
    const within = await fixture.perl('my $n = 100 * 2**20; my $x = "x" x $n; print "had it\\n"', { limits });
    assert.equal(await within.ended, 'had it\n');
    const beyond = await fixture.perl('my $n = 400 * 2**20; my $x = "x" x $n; print "had it\\n"', { limits });
    assert.equal(await beyond.ended, '');
    assert.ok(fixture.jail.memoryKillsOf(beyond.vmId) >= 1);
    assert.equal(fixture.jail.memoryKillsOf(neighbour.vmId), 0);
    assert.equal(fixture.jail.processesOf(neighbour.vmId).length, 2);
    for (const vm of [neighbour, within, beyond]) await fixture.jail.release(vm.vmId);
  });

  it('memory that is not in any process counts too: files of a memory file system (ISO-6)', async () => {
    const limits = { vcpus: 1, memoryMb: 16, fileBytes: 2 ** 30 };
    const call = process.arch === 'arm64' ? 279 : 319;
    const script = `my $name = "m"; my $fd = syscall(${call}, $name, 0); open(M, ">&=", $fd);
      for (1 .. 300) { syswrite(M, "x" x 2**20) } print "had it\\n"`;
    const vm = await fixture.perl(script, { limits });
    assert.equal(await vm.ended, '');
    assert.ok(fixture.jail.memoryKillsOf(vm.vmId) >= 1);
    await fixture.jail.release(vm.vmId);
  });

  it('all VMs together have a limit: when they reach it one of them ends, and nothing else (RES-5)', async () => {
    const home = mkdtempSync(join(fixture.home, 'together-'));
    const limits = { memoryBytes: 300 * 2 ** 20 };
    const own = await JailFixture.open(home, { limits });
    // Each VM may use 272 MiB, so only the common limit can stop two VMs that use 180 MiB each.
    const take = '$| = 1; my $n = 180 * 2**20; my $x = "x" x $n; print "had it\\n"; sleep 1000';
    const outside = spawn(PERL, ['-e', take], { stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      assert.deepEqual(own.jail.lacks, []);
      await once(outside.stdout, 'data');
      const vms = [await own.perl(take, { limits: SMALL }), await own.perl(take, { limits: SMALL })];
      await Promise.race(vms.map(({ ended }) => ended));
      const kills = vms.map(({ vmId }) => own.jail.memoryKillsOf(vmId));
      assert.deepEqual(kills.toSorted(), [0, 1]);
      assert.equal(outside.exitCode ?? outside.signalCode, null);
    } finally {
      outside.kill('SIGKILL');
      await once(outside, 'exit');
      await own.close();
    }
  });

  it('the kernel ends a VM before any process of the service when the host is out of memory (RES-5)', async () => {
    const vm = await fixture.perl('print "runs\n"; sleep 1000');
    await vm.printed(/runs/);
    const scoreOf = (pid: number | string) => Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8'));
    for (const pid of fixture.jail.processesOf(vm.vmId)) assert.equal(scoreOf(pid), 900);
    assert.ok(scoreOf('self') <= 0);
    await fixture.jail.release(vm.vmId);
  });

  it('what a VM reads from and writes to the disk can be capped, and yields in the background (RES-5)', async (t) => {
    const device = diskOf(fixture.home);
    if (device === undefined) return t.skip('the temporary folder is not on one disk');
    const disk = { bytesPerSec: 1_000_000, requestsPerSec: 500 };
    const cgroups = openCgroups(fixture.home, { limits: { disk } });
    assert.deepEqual(cgroups.lacks, []);
    const vmId = 'eeeeeeeeeeee';
    cgroups.create(vmId, SMALL);
    try {
      const read = (file: string) => readLimit(vmId, 'blkio', [file, 'io.max']);
      if (isVersion1) {
        for (const way of ['read', 'write']) {
          assert.equal(read(`blkio.throttle.${way}_bps_device`), `${device} 1000000`);
          assert.equal(read(`blkio.throttle.${way}_iops_device`), `${device} 500`);
        }
      } else assert.equal(read(''), `${device} rbps=1000000 wbps=1000000 riops=500 wiops=500`);
    } finally {
      await cgroups.remove(vmId);
    }
  });

  it('a fork bomb ends at the limit of its VM (ISO-6)', async () => {
    const script = `my $n = 0;
      while ($n < 400) { my $pid = fork; if (!defined $pid) { print "refused after $n: $!\\n"; last } if (!$pid) { sleep 1000; exit } $n++ }
      print "ends\\n"; sleep 1000`;
    const vm = await fixture.perl(script);
    await vm.printed(/ends/);
    const [, count] = /refused after (\d+): Resource temporarily unavailable/.exec(vm.output()) ?? [];
    // The limit is 161 processes. bubblewrap and the script itself are two of them, so 159 forks succeed.
    assert.equal(Number(count), 159);
    assert.equal(fixture.jail.processesOf(vm.vmId).length, 161);
    await fixture.jail.release(vm.vmId);
    assert.deepEqual(fixture.jail.processesOf(vm.vmId), []);
  });

  it('no file grows past the limit of the VM, and it leaves no core dump (ISO-6)', async () => {
    const limits = { vcpus: 1, memoryMb: 64, fileBytes: 1024 * 1024 };
    const script = `open(F, ">", "big"); while (defined syswrite(F, "x" x 65536)) {} print "$!\\n";
      truncate(F, 2 ** 31) or print "$!\\n"; if (!fork) { kill("ABRT", $$); sleep 1000 } wait; print $? & 127, $? & 128 ? " core" : "", "\\n"`;
    const vm = await fixture.perl(`$SIG{XFSZ} = "IGNORE"; ${script}`, { limits });
    assert.equal(await vm.ended, 'File too large\nFile too large\n6\n');
    assert.equal(statSync(join(vm.runDir, 'big')).size, limits.fileBytes);
    await fixture.jail.release(vm.vmId);
  });

  it('a VM may use its vCPUs and half a core, and yields while it is made in the background (ISO-6)', async () => {
    const vm = await fixture.perl('print "runs\\n"; sleep 1000', {
      limits: { vcpus: 2, memoryMb: 512, fileBytes: 2 ** 30 },
    });
    await vm.printed(/runs/);
    assert.equal(readLimit(vm.vmId, 'memory', ['memory.limit_in_bytes', 'memory.max']), String(768 * 2 ** 20));
    assert.match(readLimit(vm.vmId, 'cpu', ['cpu.cfs_quota_us', 'cpu.max']), /^250000( 100000)?$/);
    assert.equal(readLimit(vm.vmId, 'pids', ['pids.max', 'pids.max']), '162');
    const own = readFileSync(`/proc/${fixture.jail.programPid(vm.vmId, vm.child.pid ?? 0)}/limits`, 'utf8');
    assert.match(own, /^Max processes +162 +162 /m, 'where there is no cgroup');
    assert.match(own, /^Max open files +1024 +1024 /m);
    const weight = () => readLimit(vm.vmId, 'cpu', ['cpu.shares', 'cpu.weight']);
    const normal = Number(weight());
    fixture.jail.setBackground(vm.vmId, true);
    assert.ok(Number(weight()) < normal / 10, weight());
    fixture.jail.setBackground(vm.vmId, false);
    assert.equal(Number(weight()), normal);
    fixture.jail.setBackground('ffffffffffff', true);
    await fixture.jail.release(vm.vmId);
  });

  it('release ends every process of the VM, strays too, and none that only looks like one (CTL-3)', async () => {
    const decoyFile = join(fixture.home, 'qemu-system-x86_64');
    copyFileSync('/bin/sleep', decoyFile);
    const vm = fixture.newVm({
      args: ['-e', '$| = 1; for (1 .. 3) { if (!fork) { fork; sleep 1000 } } print "runs\\n"; sleep 1000'],
    });
    const jailed = await fixture.start(vm);
    await jailed.printed(/runs/);
    const decoy = spawn(decoyFile, ['1000'], { cwd: vm.runDir, stdio: 'ignore' });
    await once(decoy, 'spawn');
    const ended = once(decoy, 'exit');
    await fixture.jail.release(vm.vmId);
    await jailed.ended;
    assert.equal(decoy.exitCode ?? decoy.signalCode, null);
    assert.match(readFileSync(`/proc/${decoy.pid}/status`, 'utf8'), /^State:\s+[SR]/m);
    decoy.kill('SIGKILL');
    await ended;
  });

  it('release frees group and uid, also of a VM that ended by itself or never started', async () => {
    const one = await fixture.perl('print "ends\\n"');
    await one.ended;
    const two = fixture.newVm();
    await fixture.jail.prepare(two);
    assert.deepEqual(fixture.jail.listVmIds().sort(), [one.vmId, two.vmId].sort());
    for (const { vmId } of [one, two, two]) await fixture.jail.release(vmId);
    assert.deepEqual(fixture.jail.listVmIds(), []);
    const controllers = isVersion1 ? ['cpu', 'memory', 'pids', 'blkio'] : [''];
    for (const controller of controllers) {
      const group = join(CGROUP_ROOT, controller, `sandbar-${homeId(fixture.home)}`);
      assert.deepEqual(
        readdirSync(group, { withFileTypes: true }).filter((entry) => entry.isDirectory()),
        [],
      );
    }
    // Their uids are free again.
    assert.doesNotThrow(() => fixture.jail.adopt('0000000000aa', one.uid));
    assert.throws(() => fixture.jail.adopt('0000000000bb', one.uid), /belongs to another VM/);
    await fixture.jail.release('0000000000aa');
  });
});

describe('cgroups', () => {
  const root = mkdtempSync(join(tmpdir(), 'sandbar-cgroup-'));
  const home = '/somewhere';
  const name = `sandbar-${homeId(home)}`;
  after(() => rmSync(root, { recursive: true }));
  const limits = { vcpus: 3, memoryMb: 1024, fileBytes: 1 };

  it('a VM whose memory is a mapped file may also use the pages of that file (ISO-6)', () => {
    const mapped = join(root, 'mapped');
    mkdirSync(mapped);
    writeFileSync(join(mapped, 'cgroup.controllers'), 'cpuset cpu io memory pids');
    openCgroups(home, { root: mapped }).create('aaaaaaaaaaaa', { ...limits, mappedMb: 1024 });
    assert.equal(readFileSync(join(mapped, name, 'aaaaaaaaaaaa/memory.max'), 'utf8'), String(2304 * 2 ** 20));
  });

  it('version 2: a leaf for each VM, controllers handed down, no process in between (ISO-6)', () => {
    const v2 = join(root, 'v2');
    mkdirSync(v2);
    writeFileSync(join(v2, 'cgroup.controllers'), 'cpuset cpu io memory pids');
    const cgroups = openCgroups(home, { root: v2 });
    assert.deepEqual([cgroups.version, cgroups.lacks], [2, []]);
    assert.deepEqual(cgroups.create('aaaaaaaaaaaa', limits), [join(v2, name, 'aaaaaaaaaaaa/cgroup.procs')]);
    const read = (file: string) => readFileSync(join(v2, name, 'aaaaaaaaaaaa', file), 'utf8');
    assert.equal(read('cpu.max'), '350000 100000');
    assert.equal(read('memory.max'), String(1280 * 2 ** 20));
    assert.equal(read('memory.swap.max'), '0');
    assert.equal(read('memory.oom.group'), '1');
    assert.equal(read('pids.max'), '163');
    writeFileSync(join(v2, name, 'aaaaaaaaaaaa/cgroup.procs'), '12\n345\n');
    assert.deepEqual(cgroups.processesOf('aaaaaaaaaaaa'), [12, 345]);
    cgroups.setBackground('aaaaaaaaaaaa', true);
    assert.equal(read('cpu.weight'), '6');
    cgroups.setBackground('aaaaaaaaaaaa', false);
    assert.equal(read('cpu.weight'), '100');
    writeFileSync(join(v2, name, 'aaaaaaaaaaaa/memory.events'), 'oom 9\noom_kill 2\noom_group_kill 1\n');
    assert.equal(cgroups.memoryKillsOf('aaaaaaaaaaaa'), 2);
    assert.deepEqual(cgroups.listVmIds(), ['aaaaaaaaaaaa']);
    assert.deepEqual(readdirSync(join(v2, name)).sort(), ['aaaaaaaaaaaa', 'cgroup.subtree_control']);
    assert.match(readFileSync(join(v2, 'cgroup.subtree_control'), 'utf8'), /^\+/);
  });

  it('version 2: all VMs together have a limit, and each a weight and a cap for the disk (RES-5)', () => {
    const v2 = join(root, 'host-limits');
    mkdirSync(v2);
    writeFileSync(join(v2, 'cgroup.controllers'), 'cpuset cpu io memory pids');
    const own = { memoryBytes: 5_000_000, disk: { bytesPerSec: 1_000_000, requestsPerSec: undefined } };
    const cgroups = openCgroups(root, { root: v2, limits: own });
    const group = join(v2, `sandbar-${homeId(root)}`);
    const read = (file: string) => readFileSync(join(group, file), 'utf8');
    assert.equal(read('memory.max'), '5000000');
    cgroups.create('aaaaaaaaaaaa', limits);
    assert.equal(read('aaaaaaaaaaaa/io.weight'), '100');
    const device = diskOf(root);
    if (device !== undefined) assert.equal(read('aaaaaaaaaaaa/io.max'), `${device} rbps=1000000 wbps=1000000`);
    writeFileSync(join(group, 'aaaaaaaaaaaa/cgroup.procs'), '');
    cgroups.setBackground('aaaaaaaaaaaa', true);
    assert.equal(read('aaaaaaaaaaaa/io.weight'), '10');
  });

  it('version 2: a limit below what VMs use already would kill some, so it is not set, and that is said (RES-5)', () => {
    const v2 = join(root, 'too-low');
    const group = join(v2, name);
    mkdirSync(group, { recursive: true });
    writeFileSync(join(v2, 'cgroup.controllers'), 'cpuset cpu io memory pids');
    writeFileSync(join(group, 'memory.stat'), 'anon 6000000\nfile 1\n');
    const cgroups = openCgroups(home, { root: v2, limits: { memoryBytes: 5_000_000 } });
    assert.match(cgroups.lacks.join(), /they use more than the limit/);
    assert.ok(!existsSync(join(group, 'memory.max')));
  });

  it('a disk is found also under a partition, and not under a file system without one (RES-5)', () => {
    const sys = join(root, 'sys');
    const { dev } = statSync(root);
    assert.equal(diskOf(root, sys), undefined);
    const { major, minor } = deviceNumbers(dev);
    const device = join(sys, `${major}:${minor}`);
    mkdirSync(join(sys, 'disk/part'), { recursive: true });
    symlinkSync(join(sys, 'disk/part'), device);
    assert.equal(diskOf(root, sys), `${major}:${minor}`);
    writeFileSync(join(sys, 'disk/part/partition'), '1\n');
    writeFileSync(join(sys, 'disk/dev'), '8:0\n');
    assert.equal(diskOf(root, sys), '8:0');
  });

  it('version 2: controllers that may not be handed down are named, and VMs run without (ISO-6)', () => {
    const v2 = join(root, 'refused');
    mkdirSync(join(v2, 'cgroup.subtree_control'), { recursive: true });
    writeFileSync(join(v2, 'cgroup.controllers'), '');
    const cgroups = openCgroups(home, { root: v2 });
    assert.equal(cgroups.lacks.length, 4);
    assert.match(
      cgroups.lacks[1] ?? '',
      /^The memory of a VM is not limited on the host: the cgroup controller "memory"/,
    );
    assert.deepEqual(cgroups.create('aaaaaaaaaaaa', limits), []);
    assert.deepEqual(cgroups.listVmIds(), []);
    assert.equal(cgroups.memoryKillsOf('aaaaaaaaaaaa'), 0);
  });

  it('version 1: a controller that is not mounted is named, and the others limit (ISO-6)', () => {
    const v1 = join(root, 'v1');
    for (const controller of ['cpu', 'memory']) {
      mkdirSync(join(v1, controller), { recursive: true });
      writeFileSync(join(v1, controller, 'cgroup.procs'), '');
    }
    const cgroups = openCgroups(home, { root: v1 });
    assert.deepEqual(cgroups.lacks, [
      `The number of processes of a VM is not limited: the cgroup controller "pids" is not mounted, writable, at ${v1}/pids.`,
      `The disk of the host is not shared fairly among VMs: the cgroup controller "blkio" is not mounted, writable, at ${v1}/blkio.`,
    ]);
    assert.equal(cgroups.create('aaaaaaaaaaaa', limits).length, 2);
  });
});
