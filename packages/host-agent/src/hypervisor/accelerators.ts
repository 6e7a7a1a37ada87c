// The table of all differences between KVM and emulation in QEMU's arguments and in the guest's kernel parameters.
// docs/kvm.md says what effect of each setting was seen, and where.
import type { Isolation } from '@sandbar/contract/machine-states.ts';

/** What this host can do, and what its operator chose. */
export type QemuHost = {
  isolation: Isolation;
  /**
   * Rate of the host's time stamp counter in kHz. An emulated guest is told this rate, because 3 % of boots hang when
   * the guest measures the rate itself.
   */
  tscKhz: number;
  /** Processor of KVM guests: `host`, or the name of one of QEMU's models. `host` by default. */
  cpuModel?: string | undefined;
  /** Whether QEMU serves the root disk in a separate thread. */
  usesDiskThread?: boolean;
  /** Whether QEMU serves the root disk with io_uring. Some builds, kernels and jails do not allow that. */
  usesIoUring?: boolean;
  /** Whether the kernel of the host moves the packets of KVM guests (vhost-net). */
  usesVhostNet?: boolean;
};

export type AcceleratorSettings = {
  accel: string;
  cpu: (host: QemuHost) => string;
  /** Which chips of a PC the machine has, as properties of `-machine`. */
  chips: string;
  /** Kernel parameters of the guest. */
  kernel: (host: QemuHost) => string;
  hasDiskThread: (host: QemuHost) => boolean;
  hasIoUring: (host: QemuHost) => boolean;
  hasVhostNet: (host: QemuHost) => boolean;
  /** Whether the host's kernel may use huge pages for QEMU and the guest's memory. */
  hasHugePages: boolean;
};

export const ACCELERATORS: Record<Isolation, AcceleratorSettings> = {
  emulated: {
    accel: 'tcg,thread=multi,tb-size=64',
    // All features that QEMU can emulate, except ERMS. ERMS announces `rep movsb` as fast, so the guest's kernel would
    // copy and clear memory with this instruction, which QEMU runs one byte at a time.
    cpu: () => 'max,erms=off',
    // An emulated guest hangs without the PIT or the PIC, and boots 2 s later without the RTC.
    chips: 'pit=on,pic=on,rtc=on',
    kernel: emulatedKernel,
    // QEMU can give a disk a thread of its own only with KVM.
    hasDiskThread: () => false,
    hasIoUring: () => false,
    hasVhostNet: () => false,
    // QEMU requests huge pages for the code that it translates. A small machine would take 5 MB that it never uses
    // (measured: 29 MB instead of 24 MB).
    hasHugePages: false,
  },
  kvm: {
    accel: 'kvm',
    cpu: kvmCpu,
    // The guest has the clock of KVM, so it needs no PIT. Seen on KVM in an emulated host: it boots 2 to 3 s later
    // without the RTC, and no sooner without the PIC.
    chips: 'pit=off,pic=on,rtc=on',
    kernel: () => '',
    hasDiskThread: ({ usesDiskThread = false }) => usesDiskThread,
    hasIoUring: ({ usesIoUring = false }) => usesIoUring,
    hasVhostNet: ({ usesVhostNet = false }) => usesVhostNet,
    hasHugePages: true,
  },
};

/**
 * Guests get no virtualisation of their own (vmx, svm) and no performance counters: both let a guest reach parts of the
 * host's kernel that no machine needs. `enforce`: QEMU refuses a named model whose features this host lacks.
 */
function kvmCpu({ cpuModel = 'host' }: QemuHost): string {
  return `${cpuModel},vmx=off,svm=off,pmu=off${cpuModel === 'host' ? '' : ',enforce'}`;
}

/**
 * Kernel parameters for emulated guests:
 * - tsc_early_khz: a guest that measures the counter's rate itself hangs in 3 % of boots.
 * - tsc=reliable: if the guest considers the counter unstable, its timers get coarse and an idle machine uses 3 % of a
 *   core instead of 0.3 %.
 * - highres=off: the guest reprograms high-resolution timers so often that an exec takes a third longer (CPU time of a
 *   warm `sh -c`: 16.7 ms instead of 12.8 ms; an idle machine uses 0.5 % of a core either way). Without these timers, a
 *   sleep is only as exact as the timer tick of 4 ms.
 * - norandmaps: QEMU caches translated code by virtual address. With address randomisation it would translate a program
 *   anew at each start: an exec of /bin/true would take 24 ms instead of 4 ms, and 2.3 MB of QEMU's memory.
 * - init_on_alloc: Debian's kernel clears each page and object that it allocates. Emulated, that is slow.
 */
function emulatedKernel({ tscKhz }: QemuHost): string {
  return `tsc_early_khz=${tscKhz} tsc=reliable highres=off norandmaps init_on_alloc=0`;
}
