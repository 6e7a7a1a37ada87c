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

export type QemuHost = {
  isolation: Isolation;
  /** The host's time stamp counter in kHz; under emulation the guest is told, because calibrating hangs 3 % of boots. */
  tscKhz: number;
};

/** Arguments for `qemu-system-x86_64`. `channelToken`: 64 hex digits that open a session with the guest agent. */
export function qemuArgs(spec: VmSpec, channelToken: string, host: QemuHost): string[] {
  const emulated = host.isolation === 'emulated';
  return [
    ['-name', `sandbar-${spec.machineId}`],
    ['-nodefaults'],
    ['-no-user-config'],
    ['-display', 'none'],
    ['-machine', 'microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on,ioapic2=off'],
    ['-accel', emulated ? 'tcg,thread=multi,tb-size=64' : 'kvm'],
    ['-cpu', emulated ? 'max' : 'host'],
    ['-smp', String(spec.vcpus)],
    ['-m', `${spec.memoryMb}M`],
    ['-kernel', spec.kernelPath],
    ['-initrd', spec.initramfsPath],
    ['-append', kernelCommandLine(channelToken, host)],
    ['-chardev', `ringbuf,id=console,size=${CONSOLE_BYTES}`],
    ['-serial', 'chardev:console'],
    ['-chardev', `socket,id=qmp,path=${RUN_FILES.qmp},server=on,wait=off`],
    ['-mon', 'chardev=qmp,mode=control'],
    ['-device', 'virtio-serial-device,max_ports=2'],
    ['-chardev', `socket,id=guest,path=${RUN_FILES.guest},server=on,wait=off`],
    ['-device', `virtserialport,chardev=guest,name=${GUEST_PORT}`],
    ['-blockdev', JSON.stringify({ driver: 'file', 'node-name': 'root-file', filename: spec.diskPath })],
    ['-blockdev', JSON.stringify({ driver: 'qcow2', 'node-name': 'root', file: 'root-file', discard: 'unmap' })],
    ['-device', 'virtio-blk-device,drive=root,id=root-disk'],
    ['-device', 'virtio-scsi-device,id=scsi0'],
    ['-netdev', netdev(spec)],
    ['-device', `virtio-net-device,netdev=net0,mac=${spec.nic.mac}`],
    ['-object', 'rng-random,id=rng0,filename=/dev/urandom'],
    ['-device', 'virtio-rng-device,rng=rng0'],
    // A guest that powers off or reboots leaves its QEMU paused, so that an agent that was away still learns of it.
    ['-action', 'reboot=shutdown,shutdown=pause'],
    ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ['-pidfile', RUN_FILES.pid],
  ].flat();
}

function kernelCommandLine(channelToken: string, host: QemuHost): string {
  return [
    'console=ttyS0 quiet reboot=t panic=-1 root=/dev/vda',
    // Measured: these take the cold boot to 0.83 of its time.
    'cryptomgr.notests audit=0 8250.nr_uarts=1 noreplace-smp rcupdate.rcu_expedited=1 nowatchdog random.trust_cpu=on',
    // A self-test of 85 ms for an entropy source that nothing needs: the guest gets the host's randomness twice over.
    'initcall_blacklist=jent_mod_init',
    ...(host.isolation === 'emulated' ? [`tsc_early_khz=${host.tscKhz}`] : []),
    `sandbar.channel=${channelToken}`,
  ].join(' ');
}

function netdev({ nic }: VmSpec): string {
  if (nic.kind === 'tap') return `tap,id=net0,ifname=${nic.tapName},script=no,downscript=no`;
  return `user,id=net0,ipv6=off,net=${nic.subnet},host=${nic.gateway},dns=${nic.nameServer}`;
}
