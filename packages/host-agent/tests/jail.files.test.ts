// Tests how the agent handles files that a VM may have tampered with: it follows no links, and limits the size of logs.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  linkSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { closeInheritedDescriptors } from '../src/jail/inherited-descriptors.ts';
import { trimLog } from '../src/jail/log-cap.ts';
import { NoJail } from '../src/jail/no-jail.ts';
import { giveFile } from '../src/jail/run-directory.ts';
import { readRunFile, writeRunFile } from '../src/jail/run-files.ts';

describe('files of a jailed VM', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-jail-files-'));
  after(() => rmSync(dir, { recursive: true }));
  const secret = join(dir, 'secret');
  writeFileSync(secret, 'root only');

  it('a log that grows without end stays under its cap, keeps its end, and its writer goes on (ISO-6)', async () => {
    const log = join(dir, 'qemu.log');
    const cap = 64 * 1024;
    const fd = openSync(log, 'a');
    const writer = spawn('/bin/sh', ['-c', 'i=0; while :; do i=$((i + 1)); echo "line $i of many"; done'], {
      stdio: ['ignore', fd, fd],
    });
    const lastLine = () =>
      Number(/line (\d+) of many\n$/.exec(readFileSync(log, 'utf8').replace(/[^\n]*$/, ''))?.[1] ?? 0);
    try {
      for (let round = 0; round < 5; round++) {
        const before = lastLine();
        while (statSync(log).size <= cap || lastLine() <= before) await new Promise(setImmediate);
        trimLog(log, cap);
        // The writer goes on meanwhile, and may write more than was cut. So look at the beginning and not at the size.
        assert.match(readFileSync(log, 'utf8'), /^(\[the beginning was cut\]|line (?!1 )\d+ of many)\n/);
      }
    } finally {
      writer.kill('SIGKILL');
    }
    await once(writer, 'exit');
    const last = lastLine();
    trimLog(log, cap);
    assert.ok(statSync(log).size <= cap, String(statSync(log).size));
    assert.equal(lastLine(), last);
    trimLog(log, cap);
    assert.equal(lastLine(), last);
    trimLog(join(dir, 'no such log'), cap);
  });

  it('a symlink, a second name, a pipe or a device in the place of a log is left alone, and said (ISO-5)', () => {
    const place = (make: (path: string) => void) => {
      const path = join(dir, 'planted');
      rmSync(path, { force: true });
      make(path);
      return path;
    };
    assert.throws(
      () =>
        trimLog(
          place((path) => symlinkSync(secret, path)),
          1,
        ),
      /ELOOP/,
    );
    assert.throws(
      () =>
        trimLog(
          place((path) => linkSync(secret, path)),
          1,
        ),
      /not a log file/,
    );
    const pipe = (path: string) => spawnSync('mkfifo', [path]);
    assert.throws(() => trimLog(place(pipe), 1), /not a log file/);
    const uid = process.getuid?.() ?? 0;
    for (const plant of [(path: string) => symlinkSync(secret, path), (path: string) => linkSync(secret, path), pipe]) {
      assert.throws(() => giveFile(place(plant), { uid, gid: uid }));
    }
    rmSync(join(dir, 'planted'));
    assert.equal(readFileSync(secret, 'utf8'), 'root only');
  });

  it('what the agent reads and writes in a run directory is what is there, not what a symlink points to (ISO-5)', () => {
    symlinkSync(secret, join(dir, 'token'));
    assert.throws(() => readRunFile(dir, 'token', 100), /ELOOP/);
    writeRunFile(dir, 'token', 'mine');
    assert.equal(readRunFile(dir, 'token', 100), 'mine');
    assert.equal(statSync(join(dir, 'token')).mode & 0o777, 0o600);
    assert.equal(readFileSync(secret, 'utf8'), 'root only');
    assert.throws(() => readRunFile(dir, 'token', 3), /not what the agent has put there/);
    spawnSync('mkfifo', [join(dir, 'pipe')]);
    assert.throws(() => readRunFile(dir, 'pipe', 3), /not what the agent has put there/);
    assert.deepEqual(
      readdirSync(dir).filter((name) => name.startsWith('.')),
      [],
    );
  });

  it('a descriptor that the agent was started with by accident is not passed on (ISO-5)', () => {
    const closeAll = join(import.meta.dirname, '../src/jail/inherited-descriptors.ts');
    const script = `const { closeInheritedDescriptors } = await import(${JSON.stringify(closeAll)});
      const { spawnSync } = await import('node:child_process');
      const sees = () => spawnSync('/bin/sh', ['-c', 'test -e /proc/self/fd/66 && echo yes || echo no']).stdout.toString().trim();
      const before = sees();
      console.log(before, closeInheritedDescriptors().includes(66), sees());`;
    const args = [
      '-c',
      'exec 6</dev/null; exec perl -e \'$^F = 99; use POSIX (); POSIX::dup2(6, 66); exec @ARGV\' "$@"',
      'sh',
    ];
    const agent = spawnSync('/bin/sh', [...args, process.execPath, '--input-type=module', '-e', script], {
      encoding: 'utf8',
    });
    assert.equal(agent.stdout, 'yes true no\n', agent.stderr);
    closeInheritedDescriptors();
  });

  it('without root there is a run directory but no jail, and the missing protection is listed', async () => {
    const jail = new NoJail(dir);
    assert.equal(jail.lacks.length, 2);
    const runDir = join(dir, 'run/machines/m');
    const script = 'pwd; umask; echo "$1"; /usr/bin/env | grep -v ^_=';
    const limits = { vcpus: 1, memoryMb: 1, fileBytes: 1 };
    const vm = { vmId: '0123456789ab', runDir, readOnlyFiles: [], devices: [], limits };
    const { command, args, uid } = await jail.prepare({
      ...vm,
      program: '/bin/sh',
      args: ['-c', script, 'sh', 'an argument'],
    });
    const ran = spawnSync(command, args, { cwd: '/', env: {}, encoding: 'utf8' });
    assert.equal(ran.stdout, `${runDir}\n0177\nan argument\nPWD=${runDir}\n`);
    assert.equal(uid, undefined);
    assert.equal(statSync(runDir).mode & 0o777, 0o700);
    rmSync(runDir, { recursive: true });
    symlinkSync(dir, runDir);
    await assert.rejects(jail.prepare({ ...vm, program: '/bin/true', args: [] }), /in the way of a run directory/);
  });
});
