// The command line of a machine's QEMU, as a pure function: the device list is an allow-list, formats are explicit.
// Figures and traps behind the choices: pit=off or pic=off hang a guest under emulation, rtc=off costs 2 s of boot.
import type { Isolation } from '@sandbar/contract/machine.ts';
import type { VmSpec } from './driver.ts';

/** Names inside the run directory, which is QEMU's working directory: a Unix socket's path may hold 108 bytes only. */
export const RUN_FILES = {
  qmp: 'qmp.sock',
  guest: 'guest.sock',
  pid: 'qemu.pid',
  log: 'qemu.log',
} as const;

/** The virtio-serial port that the guest agent answers on. */
export const GUEST_PORT = 'org.sandbar.agent';

/** Bytes of console output that QEMU keeps in memory; the guest can print without end and fills nothing. */
export const CONSOLE_BYTES = 64 * 1024;

/** Block nodes: the image, the disk that a VM starts with, the device that the guest sees. */
export const IMAGE_NODE = 'image';
export const ROOT_NODE = 'root';
export const ROOT_DEVICE = 'root-disk';
const layerNode = (index: number) => `layer${index}`;
/** The node of the file below a node that has a format. */
export const fileNode = (node: string) => `${node}-file`;

export type QemuHost = {
  isolation: Isolation;
  /** The host's time stamp counter in kHz; under emulation the guest is told, because calibrating hangs 3 % of boots. */
  tscKhz: number;
};

/** The descriptors that a restored VM gets, by number. */
export const RESTORE_FDS = { state: 3, memory: 4 } as const;

/** Arguments for `qemu-system-x86_64`. `channelToken`: 64 hex digits that open a session with the guest agent. */
export function qemuArgs(spec: VmSpec, channelToken: string, host: QemuHost): string[] {
  const emulated = host.isolation === 'emulated';
  const memory = memoryBackend(spec);
  return [
    ['-name', `sandbar-${spec.vmId}`],
    ['-nodefaults'],
    ['-no-user-config'],
    ['-display', 'none'],
    ['-machine', machine(spec, memory !== undefined)],
    ['-accel', emulated ? 'tcg,thread=multi,tb-size=64' : 'kvm'],
    ['-cpu', emulated ? 'max' : 'host'],
    ['-smp', String(spec.vcpus)],
    ['-m', `${spec.memoryMb}M`],
    ...(memory ? [['-object', memory]] : []),
    ...startArgs(spec, channelToken, host),
    ['-chardev', `ringbuf,id=console,size=${CONSOLE_BYTES}`],
    ['-serial', 'chardev:console'],
    ['-chardev', `socket,id=qmp,path=${RUN_FILES.qmp},server=on,wait=off`],
    ['-mon', 'chardev=qmp,mode=control'],
    ['-device', 'virtio-serial-device,max_ports=2'],
    ['-chardev', `socket,id=guest,path=${RUN_FILES.guest},server=on,wait=off`],
    ['-device', `virtserialport,chardev=guest,name=${GUEST_PORT}`],
    ...diskNodes(spec).map((node) => ['-blockdev', JSON.stringify(node)]),
    ['-device', `virtio-blk-device,drive=${ROOT_NODE},id=${ROOT_DEVICE}`],
    ['-device', 'virtio-scsi-device,id=scsi0'],
    ['-netdev', netdev(spec)],
    // A clone has nothing to announce; and after a restore without announcements QEMU 7.2 dies of the next reset of the
    // NIC, which is what a reboot begins with: it deletes the timer of the announcements, which is not there.
    ['-device', `virtio-net-device,netdev=net0,mac=${spec.nic.mac},guest_announce=off`],
    ['-object', 'rng-random,id=rng0,filename=/dev/urandom'],
    ['-device', 'virtio-rng-device,rng=rng0'],
    // A guest that powers off or reboots leaves its QEMU paused, so that an agent that was away still learns of it.
    ['-action', 'reboot=shutdown,shutdown=pause'],
    ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
  ].flat();
}

/**
 * The disk and every file below it, each a node of its own. What is below a file is said here, not read from its header:
 * a guest has written that.
 */
function diskNodes({ diskPath, imagePath, layerPaths }: VmSpec): object[] {
  const file = (node: string, filename: string, more: object = {}) => ({
    driver: 'file',
    'node-name': fileNode(node),
    filename,
    ...more,
  });
  const readOnly = { 'read-only': true };
  const layers = layerPaths.flatMap((path, index) => {
    const node = layerNode(index);
    const backing = index === 0 ? IMAGE_NODE : layerNode(index - 1);
    return [
      file(node, path, readOnly),
      { driver: 'qcow2', 'node-name': node, file: fileNode(node), backing, ...readOnly },
    ];
  });
  const below = layerPaths.length === 0 ? IMAGE_NODE : layerNode(layerPaths.length - 1);
  return [
    file(IMAGE_NODE, imagePath, readOnly),
    { driver: 'raw', 'node-name': IMAGE_NODE, file: fileNode(IMAGE_NODE), ...readOnly },
    ...layers,
    file(ROOT_NODE, diskPath),
    { driver: 'qcow2', 'node-name': ROOT_NODE, file: fileNode(ROOT_NODE), backing: below, discard: 'unmap' },
  ];
}

function machine({ start }: VmSpec, hasMemoryBackend: boolean): string {
  return [
    'microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on,ioapic2=off',
    ...(hasMemoryBackend ? ['memory-backend=ram'] : []),
    // A list of devices has neither the head nor the tail of a migration.
    ...(isOfDevices(start) ? ['suppress-vmdesc=on'] : []),
  ].join(',');
}

function isOfDevices(start: VmSpec['start']): boolean {
  return start.kind === 'restore' && start.stateFormat === 'devices';
}

/** A restored VM needs neither kernel nor initramfs, and reading them takes 10 ms and 13 MB. */
function startArgs({ start }: VmSpec, channelToken: string, host: QemuHost): string[][] {
  if (start.kind === 'restore')
    return [['-incoming', 'defer'], ...(isOfDevices(start) ? [['-global', 'migration.send-configuration=off']] : [])];
  return [
    ['-kernel', start.kernelPath],
    ['-initrd', start.initramfsPath],
    ['-append', kernelCommandLine(channelToken, host)],
  ];
}

/** Memory that is a file: all writes go to it, or (a clone) none do. */
function memoryBackend({ start, memoryMb }: VmSpec): string | undefined {
  const backend = (path: string, share: 'on' | 'off') =>
    JSON.stringify({
      'qom-type': 'memory-backend-file',
      id: 'ram',
      'mem-path': path,
      size: memoryMb * 1024 * 1024,
      share: share === 'on',
    });
  if (start.kind === 'restore') return backend(`/proc/self/fd/${RESTORE_FDS.memory}`, 'off');
  return start.memoryPath && backend(start.memoryPath, 'on');
}

function kernelCommandLine(channelToken: string, host: QemuHost): string {
  return [
    'console=ttyS0 quiet reboot=t panic=-1 root=/dev/vda',
    // Measured: these take the cold boot to 0.83 of its time.
    'cryptomgr.notests audit=0 8250.nr_uarts=1 noreplace-smp rcupdate.rcu_expedited=1 nowatchdog random.trust_cpu=on',
    // A self-test of 85 ms for an entropy source that nothing needs: the guest gets the host's randomness twice over.
    'initcall_blacklist=jent_mod_init',
    ...(host.isolation === 'emulated' ? [emulatedOnly(host)] : []),
    `sandbar.channel=${channelToken}`,
  ].join(' ');
}

/**
 * Timers of high resolution are programmed so often that an exec takes a third longer under emulation (cpu of a warm
 * `sh -c`: 16.7 instead of 12.8 ms, an idle machine the same 0.5 %); without them a sleep is as fine as a tick, 4 ms.
 * A counter that the guest takes for unstable makes its timers coarse and an idle machine cost 3 instead of 0.3 % of a
 * core. QEMU keeps translated code by virtual address, so a program that lands on other addresses each time is translated each
 * time: with address randomisation an exec of /bin/true takes 24 instead of 4 ms, and 2.3 MB of QEMU's memory.
 */
function emulatedOnly(host: QemuHost): string {
  return `tsc_early_khz=${host.tscKhz} tsc=reliable highres=off norandmaps`;
}

function netdev({ nic }: VmSpec): string {
  if (nic.kind === 'tap') return `tap,id=net0,ifname=${nic.tapName},script=no,downscript=no`;
  return `user,id=net0,ipv6=off,net=${nic.subnet},host=${nic.gateway},dns=${nic.nameServer}`;
}
