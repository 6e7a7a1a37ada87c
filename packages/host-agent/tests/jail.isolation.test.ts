// Tests what a process in the jail can see and do, with the real bubblewrap. The answers come from the kernel and from
// the jailed process itself.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { RootJail } from '../src/jail/root-jail.ts';
import { findTool } from '../src/jail/tools.ts';
import { JailFixture, PERL, QEMU } from './support/jailed.ts';

const isRoot = process.getuid?.() === 0;

describe('jail', { skip: !isRoot }, () => {
  let fixture: JailFixture;
  before(async () => {
    fixture = await JailFixture.open();
  });
  after(() => fixture.close());

  it("every thread of QEMU has a uid of its own, no group, no capability, and QEMU's own system call filter (ISO-2)", async () => {
    const args =
      '-nodefaults -no-user-config -display none -machine microvm -accel tcg,thread=multi -m 64 -smp 2 -S -qmp stdio';
    const sandbox = ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'];
    const vm = fixture.newVm({ program: QEMU, args: [...args.split(' '), ...sandbox] });
    const qemu = await fixture.start(vm);
    await qemu.printed(/QMP/);
    const pid = fixture.jail.programPid(qemu.vmId, qemu.child.pid ?? 0) ?? assert.fail('QEMU has no pid');
    const threads = readdirSync(`/proc/${pid}/task`);
    assert.ok(threads.length >= 3, 'vCPUs are threads');
    for (const thread of threads) {
      const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
      const field = (name: string) => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.trim();
      assert.equal(field('Name'), 'qemu-system-x86');
      for (const ids of [field('Uid'), field('Gid')])
        assert.deepEqual(new Set(ids?.split('\t')), new Set([String(qemu.uid)]));
      assert.equal(field('Groups'), '');
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) assert.match(field(set) ?? '', /^0+$/, set);
      assert.equal(field('NoNewPrivs'), '1');
      assert.equal(field('Seccomp'), '2');
      assert.match(field('NSpid') ?? '', /\t1$|\t\d+$/);
    }
    assert.ok(qemu.uid > 0x6000_0000);
    await fixture.jail.release(qemu.vmId);
    await qemu.ended;
  });

  it('it sees its own run directory and the files it was given, and nothing else of the host (ISO-5)', async () => {
    const neighbour = await fixture.perl('');
    await neighbour.ended;
    const image = join(fixture.home, 'image.raw');
    const disk = join(fixture.home, 'disk.raw');
    for (const file of [image, disk]) writeFileSync(file, 'as it was');
    // Everybody may write to this file, so only the jail can prevent the write.
    chmodSync(image, 0o666);
    const script = `
      for (@ARGV) { print "sees $_\\n" if -e }
      print "reads\\n" if open(F, "<", "${image}") && <F> eq "as it was";
      print "image is writable\\n" if open(F, ">>", "${image}");
      print "disk is writable\\n" if open(F, ">>", "${disk}");
      for ("/", "/usr", "/tmp", "/dev", "${fixture.home}", "${fixture.home}/run", "${fixture.home}/run/machines") {
        print "writes $_\\n" if mkdir("$_/x") || open(F, ">", "$_/y") }
      print "run directory is writable\\n" if open(F, ">", "file");
      open(M, "<", "/proc/self/mountinfo");
      print join(" ", "writable", sort map { (split / /)[4] } grep { (split / /)[5] =~ /^rw/ } <M>), "\\n";
      opendir(D, "${fixture.home}/run/machines"); print join(" ", "machines", grep(!/^\\./, readdir D)), "\\n";
      opendir(D, "/"); print join(" ", "root", sort grep(!/^\\./, readdir D)), "\\n";
      opendir(D, "/proc"); print join(" ", "processes", grep(/^\\d+$/, readdir D)), "\\n";
      use POSIX (); print((POSIX::uname())[1], " is its name\\n");`;
    const paths = ['/root', '/home', '/etc/shadow', '/etc/passwd', '/var', '/sys', '/run', '/bin/sh', '/usr/bin/bwrap'];
    const others = [
      ...paths,
      neighbour.runDir,
      join(fixture.home, 'credentials.json'),
      '/dev/kvm',
      '/dev/vda',
      '/dev/mem',
    ];
    writeFileSync(join(fixture.home, 'credentials.json'), '{}', { mode: 0o644 });
    const vm = fixture.newVm({ readOnlyFiles: [image], writableFiles: [disk] });
    const jailed = await fixture.start({ ...vm, args: ['-e', script, ...others] });
    assert.deepEqual((await jailed.ended).trim().split('\n'), [
      'reads',
      'disk is writable',
      'run directory is writable',
      `writable /dev/null /dev/urandom /proc ${disk} ${vm.runDir}`,
      `machines ${vm.vmId}`,
      `root dev etc lib lib64 proc tmp usr`,
      'processes 1',
      'machine is its name',
    ]);
    assert.equal(statSync(disk).uid, jailed.uid);
    assert.equal(statSync(join(vm.runDir, 'file')).uid, jailed.uid);
  });

  it('its environment has one setting, and it has the descriptors it was given at their numbers, and no others (ISO-5)', async () => {
    process.env.SANDBAR_TEST_SECRET = 'not for guests';
    const given = [openSync('/dev/zero', 'r'), openSync('/etc/hostname', 'r')];
    const script = `
      print "environment ", join(" ", %ENV), "\\n";
      opendir(D, "/proc/self/fd"); my $own = fileno(D);
      for (sort { $a <=> $b } grep(/^\\d+$/, readdir D)) { print "$_ ", readlink("/proc/self/fd/$_"), "\\n" if $_ != $own }
      use Cwd (); print readlink("/proc/self/cwd"), "\\n"; <STDIN>; print "started\\n"; sleep 1000`;
    const jailed = await fixture.perl(script, {}, given);
    for (const fd of given) closeSync(fd);
    await jailed.printed(/started/);
    const lines = jailed.output().split('\n');
    assert.equal(lines[0], 'environment MALLOC_ARENA_MAX 1');
    assert.match(lines.slice(1, 4).join('\n'), /^0 \/dev\/null\n1 socket:\[\d+\]\n2 socket:\[\d+\]$/);
    assert.deepEqual(lines.slice(4, 7), ['3 /dev/zero', '4 /etc/hostname', jailed.runDir]);
    const pid = fixture.jail.programPid(jailed.vmId, jailed.child.pid ?? 0);
    assert.equal(readFileSync(`/proc/${pid}/environ`, 'utf8'), 'MALLOC_ARENA_MAX=1\0');
    // The bubblewrap process outside the jail must not keep these descriptors. Otherwise it would keep a sealed memory
    // alive.
    const monitor = `/proc/${jailed.child.pid}/fd`;
    const kept = readdirSync(monitor).map((fd) => readlinkSync(`${monitor}/${fd}`));
    assert.ok(!kept.includes('/dev/zero') && !kept.includes('/etc/hostname'), String(kept));
    assert.equal(lines[7], 'started');
    await fixture.jail.release(jailed.vmId);
  });

  it('a sealed memory that is open to everyone is opened again through /proc/self/fd, and cannot be written (ISO-4)', async () => {
    const vm = fixture.newVm({
      args: [
        '-e',
        `open(F, "+<", "/proc/self/fd/3") or die "not opened: $!"; print "opened\\n";
         defined(syswrite(F, "x")) or print "write: $!\\n"`,
      ],
    });
    const { command, args } = await fixture.jail.prepare(vm);
    // A Perl program that creates a memfd (memfd_create), seals it (F_ADD_SEALS: shrink, grow, write), and runs the
    // command with it as descriptor 3.
    const maker = `
      $^F = 9; my $name = "memory"; my $fd = syscall(${process.arch === 'arm64' ? 279 : 319}, $name, 2); open(M, "+<&=", $fd); syswrite(M, "template");
      chmod(0666, "/proc/self/fd/$fd"); fcntl(M, 1033, 14) or die; use POSIX (); POSIX::dup2($fd, 3);
      exec { $ARGV[0] } @ARGV`;
    const made = spawnSync(PERL, ['-e', maker, command, ...args], { env: {}, encoding: 'utf8' });
    assert.equal(`${made.stdout}${made.stderr}`, 'opened\nwrite: Operation not permitted\n');
    await fixture.jail.release(vm.vmId);
  });

  it('a symlink in the place of a run directory, or of a folder above it, makes the launch fail (ISO-5)', async () => {
    const target = join(fixture.home, 'target');
    mkdirSync(join(target, 'inner'), { recursive: true });
    const vm = fixture.newVm();
    symlinkSync(target, vm.runDir);
    await assert.rejects(fixture.jail.prepare(vm), /is in the way of a run directory/);
    symlinkSync(target, join(fixture.home, 'run/pool'));
    const below = fixture.newVm({ runDir: join(fixture.home, 'run/pool/inner') });
    await assert.rejects(fixture.jail.prepare(below), /run\/pool is in the way of a run directory/);
    const outside = fixture.newVm({ runDir: join(fixture.home, 'run/../../elsewhere') });
    await assert.rejects(fixture.jail.prepare(outside), /is not below/);
    for (const folder of [target, join(target, 'inner')]) assert.equal(statSync(folder).uid, 0, folder);
    assert.equal(fixture.jail.listVmIds().includes(vm.vmId), false);
  });

  it('a run directory below a folder that another account may change is refused (ISO-5)', async () => {
    const vm = fixture.newVm({ runDir: join(fixture.home, 'run/foreign/vm') });
    mkdirSync(join(fixture.home, 'run/foreign'));
    chownSync(join(fixture.home, 'run/foreign'), 65534, 65534);
    await assert.rejects(fixture.jail.prepare(vm), /may be changed by others/);
  });

  it('it is in a network namespace of its own, and reaches no socket of the host, abstract ones included (RES-9)', async () => {
    const name = `\0sandbar-test-${process.pid}`;
    const abstract = createServer((socket) => socket.end());
    await new Promise<void>((resolve) => abstract.listen({ path: name }, resolve));
    const tcp = createServer((socket) => socket.end());
    await new Promise<void>((resolve) => tcp.listen(0, '127.0.0.1', resolve));
    const { port } = tcp.address() as AddressInfo;
    const connectAll = `use Socket;
      socket(A, AF_UNIX, SOCK_STREAM, 0); print "abstract ", connect(A, sockaddr_un("\\0$ARGV[0]")) ? "yes" : "$!", "\\n";
      socket(T, AF_INET, SOCK_STREAM, 0); print "loopback ", connect(T, sockaddr_in($ARGV[1], INADDR_LOOPBACK)) ? "yes" : "$!", "\\n";`;
    const args = [name.slice(1), String(port)];
    try {
      const outside = spawnSync(PERL, ['-e', connectAll, ...args], { encoding: 'utf8' });
      assert.equal(outside.stdout, 'abstract yes\nloopback yes\n', 'both can be reached on the host');
      const script = `$| = 1; ${connectAll}
        open(D, "<", "/proc/net/dev"); <D>; <D>; print "interfaces ", join(" ", map { /(\\S+):/ } <D>), "\\n"; sleep 1000`;
      const vm = await fixture.start(fixture.newVm({ args: ['-e', script, ...args] }));
      await vm.printed(/interfaces.*\n/);
      const refused = 'Connection refused';
      assert.equal(vm.output(), `abstract ${refused}\nloopback ${refused}\ninterfaces lo\n`);
      const pid = fixture.jail.programPid(vm.vmId, vm.child.pid ?? 0);
      assert.notEqual(readlinkSync(`/proc/${pid}/ns/net`), readlinkSync('/proc/self/ns/net'));
      await fixture.jail.release(vm.vmId);
    } finally {
      abstract.close();
      tcp.close();
    }
  });

  it("sockets have mode 0600 in a folder of mode 0700, and another machine's uid does not reach them (ISO-7)", async () => {
    const listen =
      'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un("qmp.sock")) or die $!; listen(S, 1);';
    const vm = await fixture.perl(`${listen} print "listens\\n"; sleep 1000`);
    await vm.printed(/listens/);
    const socket = join(vm.runDir, 'qmp.sock');
    assert.equal(statSync(socket).mode & 0o777, 0o600);
    assert.equal(statSync(vm.runDir).mode & 0o777, 0o700);
    const connect = `use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0);
      print connect(S, sockaddr_un($ARGV[0])) ? "connected" : "$!", "\\n"; opendir(D, $ARGV[1]) or print "$!\\n"`;

    const asUid = (uid: number) => {
      const args = [
        '--reuid',
        String(uid),
        '--regid',
        String(uid),
        '--clear-groups',
        PERL,
        '-e',
        connect,
        socket,
        vm.runDir,
      ];
      return spawnSync('setpriv', args, { encoding: 'utf8' }).stdout;
    };
    const neighbour = await fixture.perl(connect, { args: ['-e', connect, socket, vm.runDir] });
    assert.equal(await neighbour.ended, 'No such file or directory\nNo such file or directory\n', 'from its own jail');
    // The test's data directory has mode 0700, which alone would protect the sockets. Open it, so that only the run
    // directory's mode is tested.
    const opened = spawnSync('chmod', [
      '0755',
      fixture.home,
      join(fixture.home, 'run'),
      join(fixture.home, 'run/machines'),
    ]);
    assert.equal(opened.status, 0);
    assert.equal(asUid(neighbour.uid), 'Permission denied\nPermission denied\n', 'from outside of any jail');
    assert.equal(asUid(vm.uid), 'connected\n', 'and its own uid does');
    await fixture.jail.release(vm.vmId);
  });

  it('the program ends with nobody but itself: not with who started it, nor with the process that waits for it (CTL-3)', async () => {
    const vm = fixture.newVm({ args: ['-e', '$| = 1; print "runs\\n"; sleep 1000'] });
    const { command, args } = await fixture.jail.prepare(vm);
    // This shell stands for the agent. It ends without waiting, as a killed agent does.
    const agent = spawn('/bin/sh', ['-c', '"$@" & echo $!; wait', 'agent', command, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let said = '';
    agent.stdout.on('data', (chunk) => {
      said += chunk;
    });
    while (!/runs/.test(said)) await once(agent.stdout, 'data');
    const monitor = Number(/\d+/.exec(said)?.[0]);
    const program = fixture.jail.programPid(vm.vmId, monitor) ?? assert.fail('no program');
    assert.deepEqual(fixture.jail.processesOf(vm.vmId).sort(), [monitor, program].sort());
    agent.kill('SIGKILL');
    await once(agent, 'exit');
    process.kill(monitor, 'SIGKILL');
    while (fixture.jail.processesOf(vm.vmId).includes(monitor)) await new Promise(setImmediate);
    assert.deepEqual(fixture.jail.processesOf(vm.vmId), [program]);
    assert.match(readFileSync(`/proc/${program}/status`, 'utf8'), /^State:\s+[SR]/m);
    await fixture.jail.release(vm.vmId);
    assert.deepEqual(fixture.jail.processesOf(vm.vmId), []);
  });

  it('the process that waits for the program ends with it (CTL-3)', async () => {
    const vm = await fixture.perl('print "runs\\n"; sleep 1000');
    await vm.printed(/runs/);
    process.kill(fixture.jail.programPid(vm.vmId, vm.child.pid ?? 0) ?? 0, 'SIGKILL');
    await vm.ended;
    assert.equal(fixture.jail.programPid(vm.vmId, vm.child.pid ?? 0), undefined);
    await fixture.jail.release(vm.vmId);
  });

  it('a device is open to the VM it was given to, with the rights of no group (ISO-9)', async () => {
    const script = 'for (@ARGV) { print open(F, "+<", $_) ? "opens $_\\n" : "$_: $!\\n" }; print "groups $)\\n"';
    const args = ['-e', script, '/dev/null', '/dev/urandom', '/dev/net/tun', '/dev/kvm'];
    const vm = await fixture.start(fixture.newVm({ args, devices: ['/dev/net/tun'] }));
    assert.deepEqual((await vm.ended).trim().split('\n'), [
      'opens /dev/null',
      'opens /dev/urandom',
      'opens /dev/net/tun',
      '/dev/kvm: No such file or directory',
      `groups ${vm.uid}`,
    ]);
    await assert.rejects(fixture.jail.prepare(fixture.newVm({ devices: ['/dev/none'] })), /\/dev\/none/);
    await assert.rejects(fixture.jail.prepare(fixture.newVm({ devices: ['/etc/hostname'] })), /not a character device/);
  });

  it('after a restart of the agent, the uid of a stopped machine is not given to another VM (ISO-2)', async () => {
    const disk = join(fixture.home, 'machines/m/disk.qcow2');
    mkdirSync(join(fixture.home, 'machines/m'), { recursive: true });
    writeFileSync(disk, '');
    const stopped = await fixture.start(fixture.newVm({ writableFiles: [disk] }));
    await stopped.ended;
    await fixture.jail.release(stopped.vmId);
    const next = await RootJail.open({ home: fixture.home, programs: [PERL] });
    const vmIds = Array.from({ length: 200 }, (_, index) => index.toString(16).padStart(12, 'd'));
    const uids = vmIds.map((vmId) => next.reserveUid(vmId));
    assert.equal(statSync(disk).uid, stopped.uid);
    assert.ok(!uids.includes(stopped.uid));
  });

  it('a host on which the jail does not work is refused at the start, with the reason', async () => {
    await assert.rejects(RootJail.open({ home: fixture.home, programs: ['/bin/false'] }), /does not let Sandbar jail/);
    assert.ok(!existsSync(join(fixture.home, 'run/jail-check')), 'the trial leaves nothing behind');
    assert.throws(() => findTool('no-such-bwrap', 'bubblewrap'), /apt-get install bubblewrap/);
  });
});
