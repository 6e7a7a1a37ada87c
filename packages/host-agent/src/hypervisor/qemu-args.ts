// Builds the command line of a VM's QEMU, as a pure function. The device list is an allow-list, and every disk format
// is explicit so that QEMU never guesses one. Three machine options look superfluous but are needed: an emulated guest
// hangs without the PIT or the PIC (pit=on, pic=on), and the boot takes 2 s longer without the RTC (rtc=on).
import type { Isolation } from '@sandbar/contract/machine.ts';
import { GREETING } from '../guest/channel-token.ts';
import type { VmSpec } from './driver.ts';

/**
 * File names in the run directory, which is QEMU's working directory. They are relative because the path of a Unix
 * socket may have at most 108 bytes.
 */
export const RUN_FILES = {
  qmp: 'qmp.sock',
  guest: 'guest.sock',
  pid: 'qemu.pid',
  log: 'qemu.log',
} as const;

/** The virtio-serial port on which the guest agent answers. */
export const GUEST_PORT = 'org.sandbar.agent';

/**
 * Bytes of console output that QEMU keeps in a ring buffer. A guest that prints endlessly fills neither memory nor
 * disk.
 */
export const CONSOLE_BYTES = 64 * 1024;

/**
 * Names in QEMU: the node of the base image, the node of the disk that the VM starts with, and the disk device of the
 * guest.
 */
export const IMAGE_NODE = 'image';
export const ROOT_NODE = 'root';
export const ROOT_DEVICE = 'root-disk';
const layerNode = (index: number) => `layer${index}`;
/** The name of the node for the plain file under a qcow2 or raw node. */
export const fileNode = (node: string) => `${node}-file`;

/**
 * All features that QEMU can emulate, but for `rep movsb` being announced as fast (ERMS). With ERMS the guest's kernel
 * copies and clears memory with it, and QEMU runs it a byte at a time.
 */
const EMULATED_CPU = 'max,erms=off';

export type QemuHost = {
  isolation: Isolation;
  /**
   * Rate of the host's time stamp counter in kHz. An emulated guest is told this rate, because measuring it itself
   * hangs 3 % of boots.
   */
  tscKhz: number;
};

/**
 * Numbers of the file descriptors that QEMU inherits: saved device state and memory file (only a restored VM has them),
 * and the tap (only a VM with a tap).
 */
export const QEMU_FDS = { state: 3, memory: 4, tap: 5 } as const;

/**
 * Returns the arguments for `qemu-system-x86_64`. They contain no secret, because every account of the host can read
 * the command lines of processes.
 */
export function qemuArgs(spec: VmSpec, host: QemuHost): string[] {
  const emulated = host.isolation === 'emulated';
  const memory = memoryBackend(spec);
  return [
    ['-name', `sandbar-${spec.vmId}`],
    ['-nodefaults'],
    ['-no-user-config'],
    ['-display', 'none'],
    ['-machine', machine(spec, memory !== undefined)],
    ['-accel', emulated ? 'tcg,thread=multi,tb-size=64' : 'kvm'],
    ['-cpu', emulated ? EMULATED_CPU : 'host'],
    ['-smp', String(spec.vcpus)],
    ['-m', `${spec.memoryMb}M`],
    ...(memory ? [['-object', memory]] : []),
    ...startArgs(spec, host),
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
    // A restored clone has nothing to announce on the network. With guest_announce on, a restore without announcements
    // leaves QEMU 7.2 without an announcement timer. At the next reset of the NIC, with which every reboot begins, QEMU
    // deletes the missing timer and crashes.
    ['-device', `virtio-net-device,netdev=net0,mac=${spec.nic.mac},guest_announce=off`],
    ['-object', 'rng-random,id=rng0,filename=/dev/urandom'],
    ['-device', 'virtio-rng-device,rng=rng0'],
    // QEMU stays paused after the guest powers off or reboots, so an agent that was not running at that moment still
    // learns about it.
    ['-action', 'reboot=shutdown,shutdown=pause'],
    ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
  ].flat();
}

/**
 * Returns the disk and every file below it, each as a node of its own. The arguments name each backing node. QEMU must
 * not read it from the qcow2 header, because a compromised guest may have changed the header.
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
    // A device state lacks the description at the end of a migration stream, so QEMU must not expect one.
    ...(start.kind === 'restore' ? ['suppress-vmdesc=on'] : []),
  ].join(',');
}

/** A restored VM gets no kernel and no initramfs: it does not need them, and reading them takes 10 ms and 13 MB. */
function startArgs({ start }: VmSpec, host: QemuHost): string[][] {
  if (start.kind === 'restore')
    return [
      ['-incoming', 'defer'],
      ['-global', 'migration.send-configuration=off'],
    ];
  return [
    ['-kernel', start.kernelPath],
    ['-initrd', start.initramfsPath],
    ['-append', kernelCommandLine(host, start.isBare === true)],
  ];
}

/**
 * Returns the memory backend when the guest's memory is a file. A cold boot shares the file, so all writes reach it. A
 * restored VM maps the file copy-on-write, so no write reaches it.
 */
function memoryBackend({ start, memoryMb }: VmSpec): string | undefined {
  const backend = (path: string, share: 'on' | 'off') =>
    JSON.stringify({
      'qom-type': 'memory-backend-file',
      id: 'ram',
      'mem-path': path,
      size: memoryMb * 1024 * 1024,
      share: share === 'on',
    });
  if (start.kind === 'restore') return backend(`/proc/self/fd/${QEMU_FDS.memory}`, 'off');
  return start.memoryPath && backend(start.memoryPath, 'on');
}

function kernelCommandLine(host: QemuHost, isBare: boolean): string {
  return [
    'console=ttyS0 quiet reboot=t panic=-1 root=/dev/vda',
    // Measured: these parameters reduce the time of a cold boot to 83 %.
    'cryptomgr.notests audit=0 8250.nr_uarts=1 noreplace-smp rcupdate.rcu_expedited=1 nowatchdog random.trust_cpu=on',
    // Skips an 85 ms self-test of the jitter entropy source. The guest does not need that source: it gets random bytes
    // from the host through virtio-rng and with its identity.
    'initcall_blacklist=jent_mod_init',
    ...(host.isolation === 'emulated' ? [emulatedOnly(host)] : []),
    // For the guest agent (guest-agent/internal/boot/bare.go).
    ...(isBare ? ['sandbar.bare'] : []),
    // Not a secret. Only guest agents of version 0.1.0 need it (guest/channel.ts).
    `sandbar.channel=${GREETING.toString('hex')}`,
  ].join(' ');
}

/**
 * Kernel parameters for emulated guests:
 * - tsc_early_khz: a guest that measures the counter's rate itself hangs in 3 % of boots.
 * - tsc=reliable: if the guest considers the counter unstable, its timers get coarse and an idle machine uses 3 % of a
 *   core instead of 0.3 %.
 * - highres=off: high-resolution timers are reprogrammed so often that an exec takes a third longer (CPU time of a warm
 *   `sh -c`: 16.7 ms instead of 12.8 ms; an idle machine uses 0.5 % of a core either way). Without them, sleeps are as
 *   coarse as the timer tick of 4 ms.
 * - norandmaps: QEMU caches translated code by virtual address. With address randomisation it would translate a program
 *   anew at each start: an exec of /bin/true would take 24 ms instead of 4 ms, and 2.3 MB of QEMU's memory.
 * - init_on_alloc: Debian's kernel clears each page and object that it allocates. Emulated, that is slow.
 */
function emulatedOnly(host: QemuHost): string {
  return `tsc_early_khz=${host.tscKhz} tsc=reliable highres=off norandmaps init_on_alloc=0`;
}

function netdev({ nic }: VmSpec): string {
  if (nic.kind === 'tap') return `tap,id=net0,fd=${QEMU_FDS.tap}`;
  return `user,id=net0,ipv6=off,net=${nic.subnet},host=${nic.gateway},dns=${nic.nameServer}`;
}
