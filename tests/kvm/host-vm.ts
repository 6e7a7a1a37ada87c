// Runs the host of the KVM test as an emulated VM. QEMU's emulated processor `max` has AMD's SVM with nested paging, so
// the real KVM runs in this VM, only slowly.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { readTscKhz } from '@sandbar/host-agent/hypervisor/tsc.ts';
import type { HostImage } from './host-image.ts';

const CPUS = 2;
const MEMORY_MB = 4096;
/**
 * Memory protection keys (pku) are off. Otherwise V8 would use them for its code, and the kernels of machines would
 * report an inconsistent XSAVE area.
 */
const PROCESSOR = 'max,-pku';
/**
 * How long the console may stay silent. This is longer than the time limit of any step inside the host, so that a step
 * that hangs reports its own failure first.
 */
const SILENCE_MS = 900_000;

/**
 * Boots the emulated host with one more kernel parameter, and passes each line of its console to `onLine`. Resolves when
 * the host has powered off. When `abort` fires or the console is silent for too long, kills the host and rejects.
 */
export async function runHost(
  image: HostImage,
  dataDisk: string,
  parameter: string,
  onLine: (line: string) => void,
  abort: AbortSignal,
): Promise<void> {
  // setpriv makes the kernel kill QEMU when this process ends, even when it ends by SIGKILL.
  const child = spawn(
    'setpriv',
    ['--pdeathsig', 'KILL', 'qemu-system-x86_64', ...hostArgs(image, dataDisk, parameter)],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
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

function hostArgs({ kernelPath, initramfsPath, diskPath }: HostImage, dataDisk: string, parameter: string): string[] {
  return [
    ['-name', 'sandbar-kvm-test', '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ['-machine', 'microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on,ioapic2=off'],
    ['-accel', 'tcg,thread=multi,tb-size=512', '-cpu', PROCESSOR, '-smp', String(CPUS), '-m', `${MEMORY_MB}M`],
    ['-kernel', kernelPath, '-initrd', initramfsPath, '-append', `${kernelCommandLine()} ${parameter}`],
    ['-serial', 'stdio'],
    // snapshot=on keeps the writes of the host in temporary files, so that the next boot finds the disks unchanged.
    ['-drive', `file=${diskPath},format=raw,if=none,id=root,snapshot=on`, '-device', 'virtio-blk-device,drive=root'],
    ['-drive', `file=${dataDisk},format=raw,if=none,id=data,snapshot=on`, '-device', 'virtio-blk-device,drive=data'],
    // Some tests look up names on the internet.
    ['-netdev', 'user,id=net0', '-device', 'virtio-net-device,netdev=net0'],
    ['-object', 'rng-random,id=rng0,filename=/dev/urandom', '-device', 'virtio-rng-device,rng=rng0'],
  ].flat();
}

function kernelCommandLine(): string {
  return [
    'console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests audit=0 8250.nr_uarts=1 nowatchdog random.trust_cpu=on',
    // Without tsc=reliable the kernel may consider the emulated TSC unstable on a busy computer, and use a slower
    // clock.
    `initcall_blacklist=jent_mod_init tsc=reliable tsc_early_khz=${readTscKhz()}`,
  ].join(' ');
}
