// Tests which hosts have the same processor for the saved memory of machines.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type MachineProcessor, processorSignature } from '../src/hypervisor/processor-signature.ts';

const KVM: MachineProcessor = {
  isolation: 'kvm',
  cpuModel: 'host',
  qemuPath: '/usr/bin/qemu-system-x86_64',
  qemuVersion: '7.2.22',
};
const EPYC = ['model name\t: AMD EPYC 7763', 'flags\t\t: fpu vme', 'bugs\t\t: spectre_v1'];
const of = (changes: Partial<MachineProcessor> = {}, host = EPYC) => processorSignature({ ...KVM, ...changes }, host);

describe('the processor of a host', () => {
  it('is that of its processor with KVM: model, flags and flaws', () => {
    assert.match(of(), /^AMD EPYC 7763 [0-9a-f]{16}, qemu-system-x86_64 7\.2$/);
    const others = [
      ['model name\t: AMD EPYC 9654', ...EPYC.slice(1)],
      [...EPYC.slice(0, 2), 'bugs\t\t:'],
      [...EPYC.slice(0, 1), 'flags\t\t: fpu', ...EPYC.slice(2)],
    ];
    for (const other of others) assert.notEqual(of({}, other), of());
  });

  it('is that of QEMU with emulation or with one of its models, whatever the host has', () => {
    for (const changes of [{ isolation: 'emulated' }, { cpuModel: 'EPYC-Milan' }] as const) {
      assert.equal(of(changes, []), of(changes));
      assert.notEqual(of(changes), of());
      assert.notEqual(of({ ...changes, qemuVersion: '10.0.1' }), of(changes));
    }
  });

  it('is another one with another QEMU, but not with a maintenance release', () => {
    assert.equal(of({ qemuVersion: '7.2.19' }), of());
    assert.notEqual(of({ qemuVersion: '8.2.0' }), of());
    assert.notEqual(of({ qemuPath: '/usr/bin/qemu-system-x86_64-microvm' }), of());
  });
});
