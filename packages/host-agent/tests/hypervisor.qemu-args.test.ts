// Compares QEMU's command line with the expected one, so that no device, format or default changes by accident.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { QemuHost } from '../src/hypervisor/accelerators.ts';
import type { VmSpec } from '../src/hypervisor/driver.ts';
import { qemuArgs } from '../src/hypervisor/qemu-args.ts';
import { readTscKhz } from '../src/hypervisor/tsc.ts';

const SPEC: VmSpec = {
  vmId: '0123456789ab',
  vcpus: 2,
  memoryMb: 512,
  diskPath: '/disk,with=comma.qcow2',
  imagePath: '/image.raw',
  layerPaths: [],
  runDir: '/run/m1',
  nic: { kind: 'tap', mac: '02:5b:0a:00:00:04', tapName: 'sbt1' },
  start: { kind: 'boot', kernelPath: '/k', initramfsPath: '/i' },
};
const RESTORE = {
  kind: 'restore',
  statePath: '/s',
  memoryFd: 9,
  templateKey: 'k',
} as const;
const HOST = { isolation: 'emulated', tscKhz: 2_596_000 } as const;
const valuesOf = (args: string[], flag: string) => args.filter((_, at) => args[at - 1] === flag);

describe('QEMU command line', () => {
  const args = qemuArgs(SPEC, HOST);

  it('has these devices and no others', () => {
    assert.deepEqual(valuesOf(args, '-device'), [
      'virtio-serial-device,max_ports=2',
      'virtserialport,chardev=guest,name=org.sandbar.agent',
      'virtio-blk-device,drive=root,id=root-disk',
      'virtio-scsi-device,id=scsi0',
      'virtio-net-device,netdev=net0,mac=02:5b:0a:00:00:04,guest_announce=off',
      'virtio-rng-device,rng=rng0',
    ]);
    assert.ok(args.includes('-nodefaults') && args.includes('-no-user-config'));
  });

  it('names every disk format, in JSON, so that a path cannot add an option', () => {
    assert.deepEqual(
      valuesOf(args, '-blockdev').map((json) => JSON.parse(json)),
      [
        { driver: 'file', 'node-name': 'image-file', filename: '/image.raw', 'read-only': true },
        { driver: 'raw', 'node-name': 'image', file: 'image-file', 'read-only': true },
        { driver: 'file', 'node-name': 'root-file', filename: '/disk,with=comma.qcow2' },
        { driver: 'qcow2', 'node-name': 'root', file: 'root-file', backing: 'image', discard: 'unmap' },
      ],
    );
    assert.ok(!args.includes('-drive'));
  });

  it('layers lie between image and disk, bottom to top, read-only, and what is below each is said (ISO-8)', () => {
    const layered = qemuArgs({ ...SPEC, layerPaths: ['/a', '/b'] }, { isolation: 'emulated', tscKhz: 1 });
    assert.deepEqual(
      valuesOf(layered, '-blockdev')
        .map((json) => JSON.parse(json))
        .slice(2),
      [
        { driver: 'file', 'node-name': 'layer0-file', filename: '/a', 'read-only': true },
        { driver: 'qcow2', 'node-name': 'layer0', file: 'layer0-file', backing: 'image', 'read-only': true },
        { driver: 'file', 'node-name': 'layer1-file', filename: '/b', 'read-only': true },
        { driver: 'qcow2', 'node-name': 'layer1', file: 'layer1-file', backing: 'layer0', 'read-only': true },
        { driver: 'file', 'node-name': 'root-file', filename: '/disk,with=comma.qcow2' },
        { driver: 'qcow2', 'node-name': 'root', file: 'root-file', backing: 'layer1', discard: 'unmap' },
      ],
    );
  });

  it('a clone gets memory and state as descriptors, its memory private, and no kernel (ISO-3, ISO-4)', () => {
    const clone = qemuArgs({ ...SPEC, start: RESTORE }, { isolation: 'emulated', tscKhz: 1 });
    assert.deepEqual(valuesOf(clone, '-incoming'), ['defer']);
    assert.deepEqual(
      valuesOf(clone, '-object').map((text) => (text.startsWith('{') ? JSON.parse(text) : text)),
      [
        {
          'qom-type': 'memory-backend-file',
          id: 'ram',
          'mem-path': '/proc/self/fd/4',
          size: 512 * 1024 * 1024,
          share: false,
        },
        'rng-random,id=rng0,filename=/dev/urandom',
      ],
    );
    for (const flag of ['-kernel', '-initrd', '-append']) assert.ok(!clone.includes(flag), flag);
    assert.deepEqual(valuesOf(clone, '-global'), ['migration.send-configuration=off']);
    assert.match(valuesOf(clone, '-machine')[0] ?? '', /,suppress-vmdesc=on$/);
    assert.deepEqual(valuesOf(clone, '-device'), valuesOf(args, '-device'));
  });

  it('denies what QEMU never needs and listens on Unix sockets only', () => {
    assert.deepEqual(valuesOf(args, '-sandbox'), [
      'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    ]);
    assert.doesNotMatch(args.join(' '), /tcp:|host=0\.0\.0\.0|vnc|-gdb/);
  });

  it('only the guest of a bare template is told to wait for its disk', () => {
    const bare = qemuArgs({ ...SPEC, start: { ...SPEC.start, isBare: true } as VmSpec['start'] }, HOST);
    assert.deepEqual(
      [bare, args].map((one) => (valuesOf(one, '-append')[0] ?? '').split(' ').includes('sandbar.bare')),
      [true, false],
    );
  });

  it("tells an emulated guest the counter's rate, but not a KVM guest", () => {
    assert.match(valuesOf(args, '-append')[0] ?? '', / tsc_early_khz=2596000 tsc=reliable highres=off norandmaps /);
    const kvm = qemuArgs(SPEC, { isolation: 'kvm', tscKhz: 1 });
    assert.doesNotMatch(valuesOf(kvm, '-append')[0] ?? '', /tsc|norandmaps| {2}/);
  });

  it('the counter rate is half of bogomips', () => {
    assert.equal(readTscKhz('processor: 0\nbogomips\t: 5192.28\n'), 2_596_140);
    assert.throws(() => readTscKhz('BogoMIPS absent'), /not an x86 host/);
  });
});

describe('QEMU command line with KVM', () => {
  const kvm = (changes: Partial<QemuHost> = {}) => qemuArgs(SPEC, { isolation: 'kvm', tscKhz: 1, ...changes });
  const everything = { usesIoUring: true, usesDiskThread: true, usesVhostNet: true, cpuModel: 'EPYC-v1' };

  it('a guest gets neither virtualisation nor performance counters of its own (ISO-1)', () => {
    assert.deepEqual(valuesOf(kvm(), '-accel'), ['kvm']);
    assert.deepEqual(valuesOf(kvm(), '-cpu'), ['host,vmx=off,svm=off,pmu=off']);
    assert.deepEqual(valuesOf(kvm({ cpuModel: 'EPYC-v1' }), '-cpu'), ['EPYC-v1,vmx=off,svm=off,pmu=off,enforce']);
  });

  it('a guest has the clock chip that its kernel looks for, and no timer chip that it does not use', () => {
    assert.match(valuesOf(kvm(), '-machine')[0] ?? '', /^microvm,acpi=on,pit=off,pic=on,rtc=on,/);
  });

  it('io_uring reads and writes every file of the root disk, and its requests have a thread of their own', () => {
    const fast = qemuArgs({ ...SPEC, layerPaths: ['/a'] }, { isolation: 'kvm', tscKhz: 1, ...everything });
    const files = valuesOf(fast, '-blockdev')
      .map((json) => JSON.parse(json))
      .filter(({ driver }) => driver === 'file');
    assert.deepEqual(
      files.map(({ aio, filename }) => `${aio} ${filename}`),
      ['io_uring /image.raw', 'io_uring /a', 'io_uring /disk,with=comma.qcow2'],
    );
    assert.ok(fast.includes('iothread,id=disk'));
    assert.ok(fast.includes('virtio-blk-device,drive=root,id=root-disk,iothread=disk'));
    assert.doesNotMatch(kvm().join(' '), /io_uring|iothread/);
  });

  it('vhost-net gets its device as a descriptor, and only a tap uses it', () => {
    assert.deepEqual(valuesOf(kvm({ usesVhostNet: true }), '-netdev'), ['tap,id=net0,fd=5,vhost=on,vhostfd=6']);
    assert.deepEqual(valuesOf(kvm(), '-netdev'), ['tap,id=net0,fd=5']);
    const user = { kind: 'user', mac: '02:5b:0a:00:00:04', subnet: 's', gateway: 'g', nameServer: 'n' } as const;
    const rootless = qemuArgs({ ...SPEC, nic: user }, { isolation: 'kvm', tscKhz: 1, usesVhostNet: true });
    assert.doesNotMatch(valuesOf(rootless, '-netdev')[0] ?? '', /vhost/);
  });

  it('nothing of this reaches an emulated guest', () => {
    const plain = qemuArgs(SPEC, { isolation: 'emulated', tscKhz: 1 });
    assert.deepEqual(qemuArgs(SPEC, { isolation: 'emulated', tscKhz: 1, ...everything }), plain);
    assert.deepEqual(valuesOf(plain, '-cpu'), ['max,erms=off']);
    assert.match(valuesOf(plain, '-machine')[0] ?? '', /,pit=on,pic=on,rtc=on,/);
  });
});
