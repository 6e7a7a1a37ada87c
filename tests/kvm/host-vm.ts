// The host of the test as a virtual machine: QEMU's own emulation, whose processor `max` has AMD's SVM with nested
// paging, so that KVM in it is real and only slow.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { readTscKhz } from '@sandbar/host-agent/hypervisor/tsc.ts';
import type { HostImage } from './host-image.ts';

const CPUS = 2;
const MEMORY_MB = 4096;
/** Without protection keys: V8 guards its code with them where they are, and a machine's kernel doubts its XSAVE area. */
const PROCESSOR = 'max,-pku';
/** How long the console may stay silent; longer than any step inside may take, so that the step says what failed. */
const SILENCE_MS = 900_000;

/** Boots the host and resolves when it is off. An abort, or a console that stays silent, ends it and rejects. */
export async function runHost(
  image: HostImage,
  dataDisk: string,
  onLine: (line: string) => void,
  abort: AbortSignal,
): Promise<void> {
  // With this process the host dies, even by SIGKILL.
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'qemu-system-x86_64', ...hostArgs(image, dataDisk)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let isSilent = false;
  const silence = setTimeout(() => {
    isSilent = true;
    child.kill('SIGKILL');
  }, SILENCE_MS);
  const end = () => child.kill('SIGKILL');
  abort.addEventListener('abort', end);
  if (abort.aborted) end();
  createInterface({ input: child.stdout }).on('line', (line) => {
    silence.refresh();
    onLine(line.trimEnd());
  });
  try {
    const [code, signal] = await once(child, 'close');
    abort.throwIfAborted();
    if (isSilent) throw new Error(`the host said nothing for ${SILENCE_MS / 1000} s and was ended`);
    if (code !== 0) throw new Error(`QEMU ended with ${signal ?? code}`);
  } finally {
    clearTimeout(silence);
    abort.removeEventListener('abort', end);
  }
}

function hostArgs({ kernelPath, initramfsPath, diskPath }: HostImage, dataDisk: string): string[] {
  return [
    ['-name', 'sandbar-kvm-test', '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ['-machine', 'microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on,ioapic2=off'],
    ['-accel', 'tcg,thread=multi,tb-size=512', '-cpu', PROCESSOR, '-smp', String(CPUS), '-m', `${MEMORY_MB}M`],
    ['-kernel', kernelPath, '-initrd', initramfsPath, '-append', kernelCommandLine()],
    ['-serial', 'stdio'],
    // What the host writes to its disks goes to temporary files: they stay as they were made, for another boot.
    ['-drive', `file=${diskPath},format=raw,if=none,id=root,snapshot=on`, '-device', 'virtio-blk-device,drive=root'],
    ['-drive', `file=${dataDisk},format=raw,if=none,id=data,snapshot=on`, '-device', 'virtio-blk-device,drive=data'],
    ['-object', 'rng-random,id=rng0,filename=/dev/urandom', '-device', 'virtio-rng-device,rng=rng0'],
  ].flat();
}

function kernelCommandLine(): string {
  return [
    'console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests audit=0 8250.nr_uarts=1 nowatchdog random.trust_cpu=on',
    // An emulated counter runs evenly, but a busy computer makes the kernel doubt it and fall back to a slow clock.
    `initcall_blacklist=jent_mod_init tsc=reliable tsc_early_khz=${readTscKhz()}`,
  ].join(' ');
}
