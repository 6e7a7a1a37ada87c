// Tests which changes of a host make a memory snapshot unusable, and that the error names the change.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { describe, it } from 'node:test';
import type { QemuHost } from '../src/hypervisor/accelerators.ts';
import type { VmSpec } from '../src/hypervisor/driver.ts';
import { qemuArgs } from '../src/hypervisor/qemu-args.ts';
import {
  argumentsOfProcess,
  chooseQemu,
  describeNeeds,
  hardwareOf,
  needsOfFingerprint,
  type ResumeNeeds,
  seriesOf,
  seriesOfAnswer,
  whatIsMissing,
} from '../src/hypervisor/resume-needs.ts';

const SPEC: VmSpec = {
  vmId: '0123456789ab',
  vcpus: 1,
  memoryMb: 512,
  diskPath: '/d',
  imagePath: '/i',
  layerPaths: [],
  runDir: '/r',
  nic: { kind: 'tap', mac: '02:5b:0a:00:00:04', tapName: 't' },
  start: { kind: 'boot', kernelPath: '/k', initramfsPath: '/i' },
};
const KVM: QemuHost = { isolation: 'kvm', tscKhz: 2_000_000 };
const NEEDS: ResumeNeeds = {
  qemu: '7.2',
  program: 'qemu-system-x86_64-microvm',
  hardware: hardwareOf(qemuArgs(SPEC, KVM)),
  tscKhz: 2_000_000,
  processor: ['model name\t: A', 'flags\t\t: fpu avx2', 'bugs\t\t: mds'],
};
const missing = (host: Partial<ResumeNeeds>, needs = NEEDS) => whatIsMissing(needs, { ...NEEDS, ...host });
const hardware = (host: Partial<QemuHost>, spec = SPEC) => hardwareOf(qemuArgs(spec, { ...KVM, ...host }));

describe('what a memory snapshot needs (CLN-5)', () => {
  it('an unchanged host lacks nothing', () => assert.equal(missing({}), undefined));

  it('a maintenance release of QEMU does not end it, another series does', () => {
    assert.deepEqual([seriesOf('7.2.22'), seriesOf('7.2.23'), seriesOf('10.0.13')], ['7.2', '7.2', '10.0']);
    assert.equal(
      missing({ qemu: '10.0' }),
      'it needs QEMU 7.2, and this host has QEMU 10.0 (SANDBAR_OLD_QEMU can name another)',
    );
    assert.match(
      missing({ program: 'qemu-system-x86_64' }) ?? '',
      /it needs qemu-system-x86_64-microvm, and this host/,
    );
  });

  it('the usual QEMU is used if it can resume it, else an older one that can', () => {
    const choices = ['10.0', '7.2', '8.0'].map((qemu) => ({ qemuPath: `/q${qemu}`, has: { ...NEEDS, qemu } }));
    assert.deepEqual(chooseQemu(NEEDS, choices), { qemuPath: '/q7.2' });
    assert.deepEqual(chooseQemu({ ...NEEDS, qemu: '10.0' }, choices), { qemuPath: '/q10.0' });
    const answer = chooseQemu({ ...NEEDS, qemu: '9.0' }, choices);
    assert.match('missing' in answer ? answer.missing : '', /^it needs QEMU 9\.0, and this host has QEMU 10\.0/);
  });

  it('a snapshot of an earlier version goes on with the QEMU with which it was taken, and with no other', () => {
    const qemuPath = process.execPath;
    const { size, mtimeMs } = statSync(qemuPath);
    const args = qemuArgs(SPEC, { isolation: 'emulated', tscKhz: 0 });
    const has = { ...NEEDS, hardware: hardwareOf(args), processor: [] };
    const of = (build: unknown[], its = args) => JSON.stringify([build, 'emulated', 2_000_000, its]);
    const read = (text: string) => needsOfFingerprint(text, { qemuPath, has });
    const needs = read(of([qemuPath, size, mtimeMs]));
    assert.equal(needs && whatIsMissing(needs, has), undefined);
    assert.equal(needs?.qemu, '7.2');
    for (const build of [
      [qemuPath, size, 1],
      [qemuPath, 1, mtimeMs],
      ['/q', size, mtimeMs],
    ])
      assert.equal(read(of(build)), undefined);
    const other = read(of([qemuPath, size, mtimeMs], qemuArgs(SPEC, KVM)));
    assert.match((other && whatIsMissing(other, has)) ?? '', /other virtual hardware/);
  });

  it('a processor with other features or flaws ends it, and they are named', () => {
    assert.match(
      missing({ processor: ['model name\t: A', 'flags\t\t: fpu', 'bugs\t\t: mds'] }) ?? '',
      /lacks .*: avx2$/,
    );
    const withFix = ['model name\t: A', 'flags\t\t: fpu avx2 md_clear', 'bugs\t\t: mds'];
    assert.match(missing({ processor: withFix }) ?? '', /does not know: md_clear$/);
    const withFlaw = ['model name\t: A', 'flags\t\t: fpu avx2', 'bugs\t\t: mds gds'];
    assert.match(missing({ processor: withFlaw }) ?? '', /does not know: bug:gds$/);
    assert.match(missing({ processor: ['model name\t: B', ...NEEDS.processor.slice(1)] }) ?? '', /lacks .*: A$/);
  });

  it('other virtual hardware ends it; what no guest sees does not', () => {
    assert.match(
      missing({ hardware: hardware({ cpuModel: 'EPYC-v1' }) }) ?? '',
      /other virtual hardware \(then: -cpu host,/,
    );
    assert.match(missing({ hardware: hardware({ usesVhostNet: true }) }) ?? '', /other virtual hardware/);
    const withVhost = { ...NEEDS, hardware: hardware({ usesVhostNet: true }) };
    assert.match(missing({}, withVhost) ?? '', /then: -netdev vhost/);
    assert.equal(missing({ hardware: hardware({ usesIoUring: true, usesDiskThread: true }) }), undefined);
    const restore = { kind: 'restore', statePath: '/s', memoryFd: 9, templateKey: 'k' } as const;
    const other = { ...SPEC, start: restore, nic: { ...SPEC.nic, mac: '02:5b:0a:00:00:05' } };
    assert.equal(missing({ hardware: hardware({}, other) }), undefined);
    const emulated = { isolation: 'emulated', tscKhz: 1 } as const;
    assert.deepEqual(hardwareOf(qemuArgs(other, emulated)), hardwareOf(qemuArgs(SPEC, emulated)));
  });

  it('a counter that runs a little faster after a reboot does not end it, another rate does', () => {
    assert.equal(missing({ tscKhz: 2_000_900 }), undefined);
    assert.match(missing({ tscKhz: 2_002_000 }) ?? '', /counts 2000000 kHz, and this host's counts 2002000/);
  });

  it('only a guest that sees the processor of the host depends on it', () => {
    const describe = (host: Partial<QemuHost>) =>
      describeNeeds('7.2', '/usr/bin/q', qemuArgs(SPEC, { ...KVM, ...host }));
    assert.ok(describe({}).processor.length >= 2);
    assert.deepEqual(describe({ cpuModel: 'EPYC-v1' }).processor, []);
    assert.deepEqual(describe({ isolation: 'emulated' }).processor, []);
    assert.equal(describe({}).program, 'q');
  });

  it('arguments come from the process itself, and an endless list is refused', async () => {
    const run = async (args: readonly string[]) => {
      const child = spawn('sleep', args);
      await once(child, 'spawn');
      try {
        return argumentsOfProcess(child.pid ?? 0);
      } finally {
        child.kill('SIGKILL');
      }
    };
    assert.deepEqual(await run(['1000', '2000']), ['sleep', '1000', '2000']);
    await assert.rejects(run(Array.from({ length: 20_000 }, () => '1000')), /too long/);
  });

  it('a QEMU that names no version is refused', () => {
    assert.equal(seriesOfAnswer({ qemu: { major: 7, minor: 2, micro: 22 }, package: 'Debian' }), '7.2');
    for (const answer of [undefined, null, {}, { qemu: {} }, { qemu: { major: 7, minor: '2' } }])
      assert.throws(() => seriesOfAnswer(answer), /does not say its version/);
  });
});
