// Tests the choice between KVM and emulation. That /dev/kvm can be opened does not prove that KVM works, so the agent
// boots a test guest. It keeps the result until the host reboots.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { chooseAccelerator } from '../src/hypervisor/accelerator.ts';
import { checkQemu, findExecutable, preferMicrovmBuild } from '../src/hypervisor/qemu-version.ts';
import { until } from './support/fake-host.ts';

describe('accelerator', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-accel-'));
  after(() => rmSync(dir, { recursive: true }));
  let made = 0;

  /** Makes a program that stands in for QEMU: it runs the shell commands in `output` and ends. Returns its path. */
  function fakeQemu(output: string): string {
    const path = join(dir, `qemu-${made++}`);
    writeFileSync(path, `#!/bin/sh\necho run >> ${path}.runs\n${output}\n`);
    chmodSync(path, 0o755);
    return path;
  }
  const ask = (qemuPath: string, changes: object = {}) => {
    const stateDir = mkdtempSync(join(dir, 'state-'));
    const kvmDevice = join(dir, 'kvm');
    writeFileSync(kvmDevice, '');
    const probe = { qemuPath, kernelPath: '/k', initramfsPath: '/i' };
    return { choice: 'auto' as const, stateDir, bootId: 'b1', qemuVersion: '7.2', probe, kvmDevice, ...changes };
  };

  it('a device that opens but boots nothing means emulation, with the reason', async () => {
    const answer = await chooseAccelerator(ask(fakeQemu('echo "kvm: unhandled exit" >&2; exit 1')));
    assert.equal(answer.isolation, 'emulated');
    assert.match(answer.reason, /opens, but no guest boots on it \(kvm: unhandled exit\)/);
  });

  it("output of the guest's init means KVM", async () => {
    const answer = await chooseAccelerator(ask(fakeQemu('echo "sandbar-agent: no root disk"')));
    assert.equal(answer.isolation, 'kvm');
  });

  it('a silent guest is given up early, a guest that printed something is not', async () => {
    const patience = 0.2;
    const mute = await chooseAccelerator(ask(fakeQemu('exec sleep 600'), { patience }));
    assert.equal(mute.isolation, 'emulated');
    const slow = await chooseAccelerator(
      ask(fakeQemu('echo "Linux version 6"; sleep 3; echo sandbar-agent'), { patience }),
    );
    assert.equal(slow.isolation, 'kvm');
  });

  it('an abort ends the test guest, and nothing is remembered', async () => {
    const stop = new AbortController();
    const place = join(dir, 'pid-of-guest');
    const question = ask(fakeQemu(`echo $$ > ${place}; exec sleep 600`), { signal: stop.signal });
    const answer = chooseAccelerator(question);
    await until('the guest runs', () => existsSync(place) && readFileSync(place, 'utf8') !== '');
    stop.abort(new Error('the agent ends'));
    await assert.rejects(answer, /the agent ends/);
    assert.throws(() => process.kill(Number(readFileSync(place, 'utf8')), 0), { code: 'ESRCH' });
    assert.equal(existsSync(join(question.stateDir, 'accelerator.json')), false);
  });

  it('no device means emulation without a boot', async () => {
    const answer = await chooseAccelerator(ask('/nonexistent/qemu', { kvmDevice: join(dir, 'absent') }));
    assert.equal(answer.isolation, 'emulated');
    assert.match(answer.reason, /ENOENT/);
  });

  it('is determined once per boot of the host and version of QEMU', async () => {
    const question = ask(fakeQemu('echo sandbar-agent'));
    await chooseAccelerator(question);
    const broken = { ...question, probe: { ...question.probe, qemuPath: fakeQemu('exit 1') } };
    assert.equal((await chooseAccelerator(broken)).isolation, 'kvm', 'remembered');
    assert.equal((await chooseAccelerator({ ...broken, bootId: 'b2' })).isolation, 'emulated', 'another boot');
    assert.equal((await chooseAccelerator({ ...broken, bootId: 'b2', qemuVersion: '9' })).isolation, 'emulated');
  });

  it('required KVM that does not work is an error, and requested emulation needs no test boot', async () => {
    await assert.rejects(chooseAccelerator(ask(fakeQemu('exit 1'), { choice: 'kvm' })), /SANDBAR_ACCELERATOR=kvm, but/);
    assert.equal((await chooseAccelerator(ask('/nonexistent/qemu', { choice: 'tcg' }))).isolation, 'emulated');
  });

  it('the microvm build of QEMU is preferred if it exists', () => {
    const plain = fakeQemu('exit 0');
    assert.equal(preferMicrovmBuild(plain), plain);
    writeFileSync(`${plain}-microvm`, '', { mode: 0o755 });
    assert.equal(preferMicrovmBuild(plain), `${plain}-microvm`);
  });

  it('a missing, broken, old or foreign QEMU gives an error that says so', async () => {
    assert.throws(() => findExecutable('qemu-system-none'), /was not found; install it/);
    await assert.rejects(
      checkQemu(fakeQemu('echo "cannot open libfoo.so" >&2; exit 127')),
      /QEMU does not work: .*libfoo.*reinstall/s,
    );
    await assert.rejects(checkQemu(fakeQemu('echo "QEMU emulator version 6.2.0"')), /6\.2 is too old/);
    await assert.rejects(checkQemu(fakeQemu('echo hello')), /is not QEMU/);
    assert.equal(await checkQemu(fakeQemu('echo "QEMU emulator version 7.2.22 (Debian)"')), '7.2.22');
  });
});
