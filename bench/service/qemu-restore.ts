// Times a bare QEMU restore: QEMU maps the memory of a template copy-on-write and loads its device state, with no jail,
// network or disk set-up. A create without a pool cannot be faster than this, so the difference is what the service
// adds.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, copyFileSync, mkdirSync, openSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import path from 'node:path';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import { openSession } from '@sandbar/host-agent/guest/channel.ts';
import { newChannelToken } from '@sandbar/host-agent/guest/channel-token.ts';
import { ACCELERATORS, type QemuHost } from '@sandbar/host-agent/hypervisor/accelerators.ts';
import { findExecutable, preferMicrovmBuild } from '@sandbar/host-agent/hypervisor/qemu-version.ts';
import { readTscKhz } from '@sandbar/host-agent/hypervisor/tsc.ts';
import { loadImage } from '@sandbar/host-agent/images/store.ts';
import { runCommand } from '@sandbar/host-agent/run-command.ts';

/** The default size of a machine. */
const MEMORY_MB = 1024;
const DISK_GB = 10;
const BOOT_WITHIN_MS = 60_000;
const RESTORE_WITHIN_MS = 20_000;
/** Numbers of the descriptors that QEMU inherits, after its three standard ones. */
const FD = { qmp: 3, guest: 4, state: 5 } as const;

export type RestoreTimes = {
  /** Milliseconds from the start of QEMU until its monitor reports that the guest runs. */
  running: number;
  /** Milliseconds from the start of QEMU until the guest agent has answered. */
  answered: number;
};

/** The program that the host agent uses for machines. */
export function machineQemu(isolation: Isolation, env: NodeJS.ProcessEnv): string {
  const qemuPath = findExecutable(env.SANDBAR_QEMU || 'qemu-system-x86_64');
  const mayPreferAnother = isolation === 'kvm' && process.getuid?.() === 0 && !env.SANDBAR_QEMU;
  return mayPreferAnother ? preferMicrovmBuild(qemuPath) : qemuPath;
}

type Files = { memory: string; disk: string; state: string; cloneDisk: string; log: string };

export class QemuRestore {
  readonly #folder: string;
  readonly #files: Files;
  readonly #isolation: Isolation;
  readonly #qemuPath: string;
  readonly #token = newChannelToken();
  readonly #host: QemuHost;

  private constructor(folder: string, isolation: Isolation, qemuPath: string) {
    this.#folder = folder;
    const file = (name: string) => path.join(folder, name);
    this.#files = {
      memory: file('memory'),
      disk: file('disk.qcow2'),
      state: file('state'),
      cloneDisk: file('clone.qcow2'),
      log: file('qemu.log'),
    };
    this.#isolation = isolation;
    this.#host = { isolation, tscKhz: readTscKhz() };
    this.#qemuPath = qemuPath;
  }

  /** Boots the base image once and keeps it as a template in /dev/shm. Call `remove` to free that memory. */
  static async prepare(cacheDir: string, isolation: Isolation, qemuPath: string): Promise<QemuRestore> {
    const restore = new QemuRestore(`/dev/shm/sandbar-bench-${process.pid}`, isolation, qemuPath);
    mkdirSync(restore.#folder, { mode: 0o700 });
    try {
      await restore.#makeTemplate(cacheDir);
      return restore;
    } catch (error) {
      restore.remove();
      throw error;
    }
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Restores the template once and returns the times. QEMU has ended when this resolves. */
  async time(): Promise<RestoreTimes> {
    copyFileSync(this.#files.disk, this.#files.cloneDisk);
    const state = openSync(this.#files.state, 'r');
    const began = performance.now();
    const vm = this.#spawn(this.#args({ disk: this.#files.cloneDisk, share: 'off' }, ['-incoming', 'defer']), state);
    closeSync(state);
    try {
      const monitor = new Monitor(vm, RESTORE_WITHIN_MS);
      monitor.send('qmp_capabilities');
      monitor.send('migrate-set-capabilities', ignoreShared);
      monitor.send('migrate-incoming', { uri: `fd:${FD.state}` });
      await monitor.event('RESUME');
      const running = performance.now() - began;
      await openSession(socketOf(vm, FD.guest), this.#token, AbortSignal.timeout(RESTORE_WITHIN_MS));
      return { running, answered: performance.now() - began };
    } finally {
      await end(vm);
    }
  }

  async #makeTemplate(cacheDir: string): Promise<void> {
    const image = await loadImage(cacheDir, 'base');
    const { disk, state } = this.#files;
    const base = ['create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', image.rootfs.path, disk, `${DISK_GB}G`];
    await runCommand('qemu-img', base);
    const boot = ['-kernel', image.kernel.path, '-initrd', image.initramfs.path, '-append', this.#commandLine()];
    const vm = this.#spawn(this.#args({ disk, share: 'on' }, boot));
    try {
      const monitor = new Monitor(vm, BOOT_WITHIN_MS);
      monitor.send('qmp_capabilities');
      const guest = socketOf(vm, FD.guest);
      await openSession(guest, this.#token, AbortSignal.timeout(BOOT_WITHIN_MS));
      monitor.send('migrate-set-capabilities', ignoreShared);
      // Save the guest while it runs: QEMU saves that state too, so a restored guest runs without a further command.
      monitor.send('migrate', { uri: `exec:cat > ${state}` });
      await monitor.event('STOP');
      for (;;) {
        const { status } = (await monitor.ask('query-migrate')) as { status?: string };
        if (status === 'completed') break;
        if (status === 'failed') throw new Error('QEMU could not save the template');
      }
      monitor.send('quit');
      await exitOf(vm);
    } finally {
      await end(vm);
    }
  }

  /** The same arguments as those of the host agent, so that the guest is the same, but its network is not connected. */
  #args({ disk, share }: { disk: string; share: 'on' | 'off' }, more: readonly string[]): string[] {
    const settings = ACCELERATORS[this.#isolation];
    const memory = `memory-backend-file,id=memory,size=${MEMORY_MB}M,mem-path=${this.#files.memory},share=${share}`;
    return [
      ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
      ['-object', memory],
      ['-machine', `microvm,acpi=on,${settings.chips},isa-serial=on,ioapic2=off,memory-backend=memory`],
      ['-accel', settings.accel],
      ['-cpu', settings.cpu(this.#host)],
      ['-smp', '1', '-m', `${MEMORY_MB}M`],
      ['-chardev', 'ringbuf,id=console,size=65536', '-serial', 'chardev:console'],
      ['-chardev', `socket,id=qmp,fd=${FD.qmp}`, '-mon', 'chardev=qmp,mode=control'],
      ['-device', 'virtio-serial-device,max_ports=2'],
      ['-chardev', `socket,id=guest,fd=${FD.guest}`],
      ['-device', 'virtserialport,chardev=guest,name=org.sandbar.agent'],
      ['-blockdev', JSON.stringify({ driver: 'file', 'node-name': 'root-file', filename: disk })],
      ['-blockdev', JSON.stringify({ driver: 'qcow2', 'node-name': 'root', file: 'root-file', discard: 'unmap' })],
      ['-device', 'virtio-blk-device,drive=root,id=root-disk'],
      ['-device', 'virtio-scsi-device,id=scsi0'],
      ['-netdev', 'hubport,id=net0,hubid=0', '-device', 'virtio-net-device,netdev=net0'],
      ['-object', 'rng-random,id=rng0,filename=/dev/urandom', '-device', 'virtio-rng-device,rng=rng0'],
      more,
    ].flat();
  }

  #commandLine(): string {
    return [
      'console=ttyS0 quiet reboot=t panic=-1 root=/dev/vda',
      'cryptomgr.notests audit=0 8250.nr_uarts=1 noreplace-smp rcupdate.rcu_expedited=1 nowatchdog random.trust_cpu=on',
      'initcall_blacklist=jent_mod_init',
      ACCELERATORS[this.#isolation].kernel(this.#host),
    ].join(' ');
  }

  /**
   * Starts QEMU. It inherits one end of a socket pair for its monitor and one for the guest channel, so both are
   * connected from the start.
   */
  #spawn(args: readonly string[], state?: number): ChildProcess {
    const log = openSync(this.#files.log, 'a', 0o600);
    const child = spawn(this.#qemuPath, args, {
      cwd: this.#folder,
      stdio: ['ignore', log, log, 'pipe', 'pipe', state ?? 'ignore'],
      env: {},
    });
    closeSync(log);
    return child;
  }
}

const ignoreShared = { capabilities: [{ capability: 'x-ignore-shared', state: true }] };

/**
 * A minimal client of QEMU's monitor (QMP). It sends commands without waiting for the greeting, and waits for events.
 */
class Monitor {
  readonly #socket: Socket;
  readonly #lines: Record<string, unknown>[] = [];
  readonly #ended: Promise<never>;
  #partial = '';
  #wake = () => {};

  constructor(vm: ChildProcess, timeoutMs: number) {
    this.#socket = socketOf(vm, FD.qmp);
    this.#socket.on('error', () => {});
    this.#socket.setEncoding('utf8').on('data', (text: string) => {
      const lines = (this.#partial + text).split('\n');
      this.#partial = lines.pop() ?? '';
      this.#lines.push(...lines.filter(Boolean).map((line) => JSON.parse(line)));
      this.#wake();
    });
    this.#ended = Promise.race([
      exitOf(vm).then(() => Promise.reject(new Error('QEMU ended'))),
      once(AbortSignal.timeout(timeoutMs), 'abort').then(() => Promise.reject(new Error('QEMU says nothing'))),
    ]);
    this.#ended.catch(() => {});
  }

  send(command: string, args?: object): void {
    this.#socket.write(`${JSON.stringify({ execute: command, ...(args === undefined ? {} : { arguments: args }) })}\n`);
  }

  /** Sends one command and returns its answer. Discards everything received before. */
  async ask(command: string): Promise<unknown> {
    this.#lines.length = 0;
    this.send(command);
    return (await this.#first((line) => 'return' in line)).return;
  }

  async event(name: string): Promise<void> {
    await this.#first((line) => line.event === name);
  }

  /** Waits for the first line that `isWanted` accepts. Throws when QEMU has refused a command, ends or says nothing. */
  async #first(isWanted: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>> {
    for (;;) {
      const refused = this.#lines.find((line) => 'error' in line);
      if (refused) throw new Error(`QEMU refused: ${JSON.stringify(refused.error)}`);
      const found = this.#lines.find(isWanted);
      if (found) return found;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await Promise.race([promise, this.#ended]);
    }
  }
}

function socketOf(vm: ChildProcess, descriptor: number): Socket {
  return vm.stdio[descriptor] as Socket;
}

async function exitOf(vm: ChildProcess): Promise<void> {
  if (vm.exitCode === null && vm.signalCode === null) await once(vm, 'exit');
}

async function end(vm: ChildProcess): Promise<void> {
  vm.kill('SIGKILL');
  await exitOf(vm);
}
