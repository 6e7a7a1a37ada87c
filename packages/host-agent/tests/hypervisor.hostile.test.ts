// Tests the agent against a compromised QEMU: the files it puts into its run directory and the messages it sends on its
// monitor.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
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
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { processInfo } from '../src/hypervisor/process.ts';
import { describeProcessor } from '../src/hypervisor/processor.ts';
import { lastLogLine, MAX_LOG_BYTES, trimLogs } from '../src/hypervisor/qemu-log.ts';
import { QemuVm } from '../src/hypervisor/qemu-vm.ts';
import type { QmpClient } from '../src/hypervisor/qmp.ts';
import { connectUnix } from '../src/hypervisor/unix-socket.ts';
import { VmRecords } from '../src/hypervisor/vm-record.ts';
import { type Command, openMonitor as listenAs } from './support/fake-monitor.ts';

describe('hostile QEMU', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-hostile-'));
  const ends: (() => void)[] = [];
  after(() => {
    for (const end of ends) end();
    rmSync(dir, { recursive: true });
  });
  const folder = (...names: string[]) => {
    const path = join(dir, ...names);
    mkdirSync(path, { recursive: true });
    return path;
  };

  async function openMonitor(name: string, onCommand: (command: Command, qemu: Socket) => void) {
    const monitor = await listenAs(dir, name, onCommand);
    ends.push(monitor.close);
    return monitor;
  }

  function newVm(qmp: QmpClient): QemuVm {
    const record = { vmId: '0123456789ab', uid: null, runDir: folder('vm'), channelToken: '', templateKey: null };
    return new QemuVm(
      processInfo(process.pid) ?? assert.fail(),
      qmp,
      { ...record, process: null },
      {
        moved() {},
        setBackground() {},
        ended: async () => {},
        memoryKills: () => 0,
      },
      { connect: () => assert.fail('no session is opened') },
    );
  }

  it('what is planted in the place of a log is said, and keeps no other log from being cut (ISO-5)', () => {
    const machines = folder('run', 'machines');
    symlinkSync('/etc/passwd', join(folder('run', 'machines', 'a'), 'qemu.log'));
    spawnSync('mkfifo', [join(folder('run', 'machines', 'b'), 'qemu.log')]);
    folder('run', 'machines', 'c', 'qemu.log');
    writeFileSync(join(machines, 'd'), 'no folder');
    const log = join(folder('run', 'machines', 'e'), 'qemu.log');
    writeFileSync(log, Buffer.alloc(MAX_LOG_BYTES + 1, 'x'));
    const said: object[] = [];
    trimLogs(join(dir, 'run'), { warn: (details) => void said.push(details) });
    assert.equal(said.length, 4);
    assert.ok(statSync(log).size < MAX_LOG_BYTES);
  });

  it('the last line is read from a log of any size, and from nothing else (ISO-5)', () => {
    const runDir = folder('last');
    const log = join(runDir, 'qemu.log');
    assert.equal(lastLogLine(runDir), '');
    writeFileSync(log, `${'line\n'.repeat(MAX_LOG_BYTES)}the last\n`);
    assert.equal(lastLogLine(runDir), 'the last');
    const plants = [
      () => symlinkSync('/etc/passwd', log),
      () => void spawnSync('mkfifo', [log]),
      () => void mkdirSync(log),
    ];
    for (const plant of plants) {
      rmSync(log, { recursive: true });
      plant();
      assert.equal(lastLogLine(runDir), '');
    }
  });

  it('a socket is connected to in a folder with a long name, and a symlink to one is not (ISO-5)', async () => {
    const long = folder('n'.repeat(200));
    const server = createServer((socket) => socket.end());
    const path = join(dir, 'other.sock');
    await new Promise<void>((resolve) => server.listen(path, resolve));
    ends.push(() => server.close());
    symlinkSync(path, join(long, 'qmp.sock'));
    writeFileSync(join(long, 'guest.sock'), '');
    await assert.rejects(connectUnix(long, 'qmp.sock'), /is not a socket/);
    await assert.rejects(connectUnix(long, 'guest.sock'), /is not a socket/);
    spawnSync('ln', [path, join(long, 'plain.sock')]);
    (await connectUnix(long, 'plain.sock')).destroy();
    const fds = () => readdirSync('/proc/self/fd').length;
    const before = fds();
    await assert.rejects(connectUnix(long, 'qmp.sock'));
    assert.equal(fds(), before);
  });

  it('STOP events without end are answered by one question at a time, and the last is not missed (ISO-5)', async () => {
    let asked: Command[] = [];
    const { qmp, qemu } = await openMonitor('stop.sock', (command) => void asked.push(command));
    const vm = newVm(qmp);
    const marked = new Promise<void>((resolve) => qmp.on('event', (name) => name === 'MARK' && resolve()));
    qemu.write(`${'{"event": "STOP"}\n'.repeat(1000)}{"event": "MARK"}\n`);
    await marked;
    // QEMU gets this command after all queries that the events caused.
    qmp.execute('last').catch(() => {});
    while (asked.at(-1)?.execute !== 'last') await new Promise(setImmediate);
    assert.deepEqual(
      asked.map(({ execute }) => execute),
      ['query-status', 'last'],
    );
    const [first] = asked;
    asked = [];
    qemu.write(`{"return": {"status": "running"}, "id": ${first?.id}}\n`);
    while (asked.length === 0) await new Promise(setImmediate);
    qemu.write(`{"return": {"status": "shutdown"}, "id": ${asked[0]?.id}}\n`);
    assert.equal((await vm.exited).cause, 'powered-off');
  });

  it('a reason, a console and a refusal that are no text are not believed, and harm nothing (ISO-5)', async () => {
    const { qmp, qemu } = await openMonitor('text.sock', ({ execute, id }, socket) => {
      const odd = '{"toString": 1, "valueOf": 1}';
      const answer = execute === 'odd' ? `"error": {"class": "x", "desc": ${odd}}` : `"return": ${odd}`;
      socket.write(`{${answer}, "id": ${id}}\n`);
    });
    const vm = newVm(qmp);
    await assert.rejects(qmp.execute('odd'), /QEMU refused/);
    assert.equal(await vm.readConsole(), '');
    qemu.write('{"event": "SHUTDOWN", "data": {"reason": {"toString": 1, "valueOf": 1}}}\n');
    assert.equal((await vm.exited).cause, 'died');
  });

  it('a monitor that answers nothing is let go after 64 commands (ISO-5)', async () => {
    const { qmp, host } = await openMonitor('flood.sock', () => {});
    const failures = Array.from({ length: 65 }, () =>
      qmp.execute('query-status').catch((error: Error) => error.message),
    );
    assert.match(String((await Promise.all(failures)).at(-1)), /too much unanswered/);
    assert.ok(host.destroyed);
  });

  it('a record that cannot be read now stays; one that says nothing goes, and only when that is asked for (CTL-3)', () => {
    const path = folder('records');
    const records = new VmRecords(path);
    const broken = join(path, 'aaaaaaaaaaaa.json');
    writeFileSync(broken, '{"half":');
    assert.deepEqual([records.list(), existsSync(broken)], [[], true]);
    records.removeBroken();
    assert.ok(!existsSync(broken));
    symlinkSync(broken, broken);
    assert.throws(() => records.list(), /ELOOP/);
    assert.throws(() => records.removeBroken(), /ELOOP/);
    assert.deepEqual(readdirSync(path), ['aaaaaaaaaaaa.json']);
  });

  it('a processor is identified by its model, flags and flaws, not by its microcode or its current clock rate', () => {
    const first =
      'model name\t: A\nmicrocode\t: 0x1\ncpu MHz\t\t: 1.5\nflags\t\t: fpu vme\nvmx flags\t: x\nbugs\t\t: mds\n';
    assert.deepEqual(describeProcessor(`${first}\n${first.replace('A', 'B')}`), [
      'model name\t: A',
      'flags\t\t: fpu vme',
      'bugs\t\t: mds',
    ]);
    assert.ok(describeProcessor(readFileSync('/proc/cpuinfo', 'utf8')).length >= 2);
  });
});
