// Builds the command line of a VM's QEMU, as a pure function. The device list is an allow-list, and every disk format
// is explicit so that QEMU never guesses one. accelerators.ts has what differs between KVM and emulation.
import { GREETING } from '../guest/channel-token.ts';
import { ACCELERATORS, type AcceleratorSettings, type QemuHost } from './accelerators.ts';
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
 * Numbers of the file descriptors that QEMU inherits: saved device state and memory file (only a restored VM has them),
 * the tap (only a VM with a tap), and /dev/vhost-net (only a VM whose packets the host's kernel moves).
 */
export const QEMU_FDS = { state: 3, memory: 4, tap: 5, vhost: 6 } as const;

/** QEMU's own filter of system calls. */
export const SANDBOX = 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny';

/** The thread for requests of the root disk. Volumes, which are plugged while the VM runs, use QEMU's main thread. */
const DISK_THREAD = 'disk';

/**
 * Returns the arguments for `qemu-system-x86_64`. They contain no secret, because every account of the host can read
 * the command lines of processes.
 */
export function qemuArgs(spec: VmSpec, host: QemuHost): string[] {
  const settings = ACCELERATORS[host.isolation];
  const hasDiskThread = settings.hasDiskThread(host);
  const memory = memoryBackend(spec);
  return [
    ['-name', `sandbar-${spec.vmId}`],
    ['-nodefaults'],
    ['-no-user-config'],
    ['-display', 'none'],
    ['-machine', machine(spec, settings, memory !== undefined)],
    ['-accel', settings.accel],
    ['-cpu', settings.cpu(host)],
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
    ...diskNodes(spec, settings.hasIoUring(host)).map((node) => ['-blockdev', JSON.stringify(node)]),
    ...(hasDiskThread ? [['-object', `iothread,id=${DISK_THREAD}`]] : []),
    [
      '-device',
      `virtio-blk-device,drive=${ROOT_NODE},id=${ROOT_DEVICE}${hasDiskThread ? `,iothread=${DISK_THREAD}` : ''}`,
    ],
    ['-device', 'virtio-scsi-device,id=scsi0'],
    ['-netdev', netdev(spec, settings.hasVhostNet(host))],
    // A restored clone has nothing to announce on the network. With guest_announce on, a restore without announcements
    // leaves QEMU 7.2 without an announcement timer. At the next reset of the NIC, with which every reboot begins, QEMU
    // deletes the missing timer and crashes.
    ['-device', `virtio-net-device,netdev=net0,mac=${spec.nic.mac},guest_announce=off`],
    ['-object', 'rng-random,id=rng0,filename=/dev/urandom'],
    ['-device', 'virtio-rng-device,rng=rng0'],
    // QEMU stays paused after the guest powers off or reboots, so an agent that was not running at that moment still
    // learns about it.
    ['-action', 'reboot=shutdown,shutdown=pause'],
    ['-sandbox', SANDBOX],
  ].flat();
}

/**
 * Returns the disk and every file below it, each as a node of its own. The arguments name each backing node. QEMU must
 * not read it from the qcow2 header, because a compromised guest may have changed the header.
 */
function diskNodes({ diskPath, imagePath, layerPaths }: VmSpec, hasIoUring: boolean): object[] {
  const file = (node: string, filename: string, more: object = {}) => ({
    driver: 'file',
    'node-name': fileNode(node),
    filename,
    ...(hasIoUring ? { aio: 'io_uring' } : {}),
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

function machine({ start }: VmSpec, { chips }: AcceleratorSettings, hasMemoryBackend: boolean): string {
  return [
    `microvm,acpi=on,${chips},isa-serial=on,ioapic2=off`,
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
    ACCELERATORS[host.isolation].kernel(host),
    // For the guest agent (guest-agent/internal/boot/bare.go).
    isBare ? 'sandbar.bare' : '',
    // Not a secret. Only guest agents of version 0.1.0 need it (guest/channel.ts).
    `sandbar.channel=${GREETING.toString('hex')}`,
  ]
    .filter((words) => words !== '')
    .join(' ');
}

function netdev({ nic }: VmSpec, hasVhostNet: boolean): string {
  const vhost = hasVhostNet ? `,vhost=on,vhostfd=${QEMU_FDS.vhost}` : '';
  if (nic.kind === 'tap') return `tap,id=net0,fd=${QEMU_FDS.tap}${vhost}`;
  return `user,id=net0,ipv6=off,net=${nic.subnet},host=${nic.gateway},dns=${nic.nameServer}`;
}
