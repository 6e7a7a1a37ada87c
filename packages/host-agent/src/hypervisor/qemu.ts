// Starts QEMU processes, and takes over the ones that an earlier agent started.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, realpathSync, rmSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import { newChannelToken } from '../guest/channel-token.ts';
import type { GuestConnector } from '../guest/guest.ts';
import type { Jail, JailCommand } from '../jail/jail.ts';
import { writeRunFile } from '../jail/run-files.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { ACCELERATORS, type QemuHost } from './accelerators.ts';
import type { Hypervisor, HypervisorInventory, Restore, Vm, VmSpec } from './driver.ts';
import { type KvmAbilities, VHOST_DEVICE } from './host-abilities.ts';
import { findQemuBelow, isWorkingIn, killProcess, type ProcessInfo, processInfo } from './process.ts';
import { describeProcessor } from './processor.ts';
import { QEMU_FDS, qemuArgs, RUN_FILES } from './qemu-args.ts';
import { lastLogLine, openLog } from './qemu-log.ts';
import { checkQemu } from './qemu-version.ts';
import { QemuVm, type VmOwner } from './qemu-vm.ts';
import { QmpClient } from './qmp.ts';
import { describeNeeds, type ResumeChoice, seriesOf } from './resume-needs.ts';
import { openTap } from './tap.ts';
import { readTscKhz } from './tsc.ts';
import { connectUnix, connectUnixWhenReady } from './unix-socket.ts';
import { type VmRecord, VmRecords } from './vm-record.ts';

/**
 * Time limit for QEMU to start and answer on its monitor (30 ms on an idle host), and for loading a saved state (50
 * ms).
 */
const MONITOR_TIMEOUT_MS = 15_000;
/** Largest file that a VM may write: the largest root disk of 1024 GiB, plus the overhead of qcow2. */
const MAX_FILE_BYTES = 1100 * 1024 ** 3;

export type QemuOptions = {
  qemuPath: string;
  /** Older programs, which only resume memory snapshots. */
  oldQemuPaths?: readonly string[];
  isolation: Isolation;
  /** Settings of VMs on KVM. Emulation ignores them. */
  abilities?: KvmAbilities;
  jail: Jail;
  guests: GuestConnector;
  /** The folder that contains all run directories. */
  runDir: string;
  /** The folder of the VM records; must exist. */
  recordsDir: string;
  /** Factor on the time limit for loading a saved state; 1 by default. */
  patience?: number;
};

export class QemuHypervisor implements Hypervisor {
  readonly isolation: Isolation;
  readonly fingerprint: string;
  readonly #options: QemuOptions;
  readonly #records: VmRecords;
  readonly #host: QemuHost;
  /** Versions of QEMU programs, by {@link buildOf}. */
  readonly #series = new Map<string, string>();

  constructor(options: QemuOptions) {
    this.#options = options;
    this.isolation = options.isolation;
    this.#host = { isolation: options.isolation, tscKhz: readTscKhz(), ...options.abilities };
    this.#records = new VmRecords(options.recordsDir);
    this.fingerprint = JSON.stringify([
      buildOf(options.qemuPath),
      options.isolation,
      this.#host.tscKhz,
      // An emulated guest sees QEMU's own processor model, so the host's processor does not matter.
      ...(options.isolation === 'kvm' ? [describeProcessor()] : []),
      argumentsOf(this.#host, SOME_BOOT),
    ]);
  }

  async resumeChoices(): Promise<ResumeChoice[]> {
    const { qemuPath: usual, oldQemuPaths = [] } = this.#options;
    const args = argumentsOf(this.#host, SOME_RESTORE);
    const describe = async (qemuPath: string) => {
      const has = describeNeeds(await this.#seriesOf(qemuPath), realpathSync(qemuPath), args);
      return { qemuPath, has };
    };
    return Promise.all([usual, ...oldQemuPaths].map(describe));
  }

  /** Asks a program for its version, and again only when an update has replaced the program. */
  async #seriesOf(qemuPath: string): Promise<string> {
    const build = JSON.stringify(buildOf(qemuPath));
    const series = this.#series.get(build) ?? seriesOf(await checkQemu(qemuPath));
    this.#series.set(build, series);
    return series;
  }

  reserveUid(vmId: string): number | undefined {
    return this.#options.jail.reserveUid(vmId);
  }

  async launch(spec: VmSpec): Promise<Vm> {
    const channelToken = newChannelToken();
    const { vmId, runDir } = spec;
    const templateKey = spec.start.kind === 'restore' ? spec.start.templateKey : null;
    let qemu: SpawnedQemu | undefined;
    try {
      const { uid = null, ...command } = await this.#prepare(spec);
      const record = { vmId, uid, runDir, channelToken, templateKey, process: null };
      this.#records.write(record);
      qemu = await spawnQemu(this.#programOf(spec), command, spec, this.#host);
      const qmp = await openMonitor(runDir, qemu);
      const process = this.#processOf(vmId, qemu);
      writeRunFile(runDir, RUN_FILES.pid, `${process.pid}\n`);
      const { pid, startTicks } = process;
      this.#records.write({ ...record, process: { pid, startTicks } });
      const { start } = spec;
      const load = start.kind === 'restore' ? () => this.#load(qmp, start) : undefined;
      if (start.kind === 'restore' && start.waits)
        return this.#vm({ ...record, process: { pid, startTicks } }, process, qmp, load);
      await load?.();
      return this.#vm({ ...record, process: { pid, startTicks } }, process, qmp);
    } catch (error) {
      const failure = launchFailure(error, qemu?.failure());
      // Wait until QEMU is gone, because another VM may get its disk next.
      await qemu?.kill();
      await this.#release(vmId);
      // Remove the run directory only now, when the VM's processes are gone. Before, they could replace a folder by a
      // symlink while the agent removes it.
      rmSync(runDir, { recursive: true, force: true });
      throw failure;
    }
  }

  release(vmId: string): Promise<void> {
    return this.#release(vmId);
  }

  inventory(): HypervisorInventory {
    return {
      processes: findQemuBelow(this.#options.runDir),
      cgroups: this.#options.jail.listVmIds(),
      records: this.#records.list().map(({ vmId }) => vmId),
    };
  }

  async adopt(): Promise<Vm[]> {
    const adopted: Vm[] = [];
    this.#records.removeBroken();
    for (const record of this.#records.list()) {
      const vm = await this.#adoptOne(record);
      if (vm) adopted.push(vm);
      else await this.#endStray(record);
    }
    const known = new Set(adopted.map((vm) => vm.vmId));
    for (const vmId of this.#options.jail.listVmIds()) if (!known.has(vmId)) await this.#options.jail.release(vmId);
    const pids = new Set(adopted.map((vm) => vm.pid));
    for (const info of findQemuBelow(this.#options.runDir)) if (!pids.has(info.pid)) await killProcess(info);
    return adopted;
  }

  #prepare(spec: VmSpec): Promise<JailCommand> {
    const { start } = spec;
    const boot = start.kind === 'boot' ? start : undefined;
    const mappedMb = start.kind === 'restore' ? spec.memoryMb : 0;
    return this.#options.jail.prepare({
      vmId: spec.vmId,
      runDir: spec.runDir,
      program: this.#programOf(spec),
      args: qemuArgs(spec, this.#hostOf(spec)),
      readOnlyFiles: [spec.imagePath, ...spec.layerPaths, ...(boot ? [boot.kernelPath, boot.initramfsPath] : [])],
      writableFiles: [spec.diskPath, ...(boot?.memoryPath ? [boot.memoryPath] : [])],
      devices: this.isolation === 'kvm' ? ['/dev/kvm'] : [],
      limits: { vcpus: spec.vcpus, memoryMb: spec.memoryMb, mappedMb, fileBytes: MAX_FILE_BYTES },
    });
  }

  #programOf({ start }: VmSpec): string {
    return (start.kind === 'restore' && start.qemuPath) || this.#options.qemuPath;
  }

  /** An older program gets no io_uring, because only the usual program was tried with it. */
  #hostOf(spec: VmSpec): QemuHost {
    return this.#programOf(spec) === this.#options.qemuPath ? this.#host : { ...this.#host, usesIoUring: false };
  }

  #processOf(vmId: string, qemu: SpawnedQemu): ProcessInfo {
    const pid = this.#options.jail.programPid(vmId, qemu.pid());
    const info = pid === undefined ? undefined : processInfo(pid);
    if (!info) throw new Error('QEMU ended at once');
    return info;
  }

  async #load(qmp: QmpClient, { memoryReady, abort }: Restore): Promise<void> {
    await memoryReady;
    const patience = AbortSignal.timeout(MONITOR_TIMEOUT_MS * (this.#options.patience ?? 1));
    await restoreState(qmp, abort ? AbortSignal.any([patience, abort]) : patience);
  }

  #vm(record: VmRecord, process: ProcessInfo, qmp: QmpClient, load?: () => Promise<void>): QemuVm {
    const owner: VmOwner = {
      load,
      moved: (moved) => this.#records.write(moved),
      setBackground: (isBackground) => this.#options.jail.setBackground(record.vmId, isBackground),
      ended: () => this.#release(record.vmId),
      memoryKills: () => this.#options.jail.memoryKillsOf(record.vmId),
    };
    return new QemuVm(process, qmp, record, owner, this.#options.guests);
  }

  async #release(vmId: string): Promise<void> {
    await this.#options.jail.release(vmId);
    this.#records.remove(vmId);
  }

  /**
   * Takes over the VM of a record. Returns undefined unless the process runs QEMU, began at the recorded time, and
   * works in the recorded directory.
   */
  async #adoptOne(record: VmRecord): Promise<Vm | undefined> {
    const info = record.process ? processInfo(record.process.pid) : undefined;
    if (!info || info.startTicks !== record.process?.startTicks || !isWorkingIn(info, record.runDir)) return undefined;
    try {
      this.#options.jail.adopt(record.vmId, record.uid ?? undefined);
      const qmp = await QmpClient.open(await connectUnix(record.runDir, RUN_FILES.qmp));
      return this.#vm(record, info, qmp);
    } catch {
      return undefined;
    }
  }

  /**
   * Ends a VM that was not taken over. A record alone does not prove that a process or folder is ours, so only a QEMU
   * that works in one of our run directories is killed, and only a folder below them is removed.
   */
  async #endStray({ vmId, process, runDir }: VmRecord): Promise<void> {
    const info = findQemuBelow(this.#options.runDir).find(({ pid }) => pid === process?.pid);
    if (info && info.startTicks === process?.startTicks) await killProcess(info);
    await this.#release(vmId);
    if (isBelow(runDir, this.#options.runDir)) rmSync(runDir, { recursive: true, force: true });
  }
}

function isBelow(path: string, dir: string): boolean {
  return resolve(path).startsWith(`${resolve(dir)}/`);
}

type SpawnedQemu = Awaited<ReturnType<typeof spawnQemu>>;

/**
 * Starts QEMU detached, in a session of its own and with an empty environment: it outlives the agent and inherits no
 * secrets.
 */
async function spawnQemu(
  qemuPath: string,
  { command, args }: Omit<JailCommand, 'uid'>,
  { runDir, start, nic }: VmSpec,
  host: QemuHost,
) {
  const opened: number[] = [];
  const open = (fd: number) => {
    opened.push(fd);
    return fd;
  };
  let child: ChildProcess;
  try {
    const log = open(openLog(runDir));
    const stdio: (number | 'ignore')[] = ['ignore', log, log, 'ignore', 'ignore', 'ignore'];
    if (start.kind === 'restore') {
      stdio[QEMU_FDS.state] = open(openSync(start.statePath, 'r'));
      stdio[QEMU_FDS.memory] = start.memoryFd;
    }
    if (nic.kind === 'tap') stdio[QEMU_FDS.tap] = open(await openTap(nic.tapName));
    // Open the device for QEMU, because QEMU cannot open it in the jail.
    if (nic.kind === 'tap' && ACCELERATORS[host.isolation].hasVhostNet(host))
      stdio[QEMU_FDS.vhost] = open(openSync(VHOST_DEVICE, 'r+'));
    child = spawn(command, args, { cwd: '/', detached: true, stdio, env: {} });
  } finally {
    for (const fd of opened) closeSync(fd);
  }
  child.unref();
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()).once('error', () => resolve()));
  let failure: string | undefined;
  child.on('error', (error) => {
    failure = `${command} cannot be run (${error.message})`;
  });
  child.on('exit', (code, signal) => {
    failure ??= `${qemuPath} ended with ${signal ?? `code ${code}`}: ${lastLogLine(runDir) || 'no message'}`;
  });
  return {
    failure: () => failure,
    /** Resolves when the process is gone. */
    kill: async () => {
      child.kill('SIGKILL');
      await gone;
    },
    pid: () => {
      if (child.pid === undefined) throw new Error(`${command} cannot be run`);
      return child.pid;
    },
  };
}

async function openMonitor(runDir: string, qemu: SpawnedQemu): Promise<QmpClient> {
  const timeout = AbortSignal.timeout(MONITOR_TIMEOUT_MS);
  const socket = await connectUnixWhenReady(runDir, RUN_FILES.qmp, timeout, () => qemu.failure() !== undefined);
  return QmpClient.open(socket);
}

/**
 * Loads the device state and resolves when the guest runs. Rejects when `giveUp` aborts first, because a state saved by
 * a compromised QEMU may load and never run. QEMU reads its monitor one byte at a time, so the commands are few and
 * sent together. `announce-rounds` is 0 because QEMU would announce the template's MAC address.
 */
async function restoreState(qmp: QmpClient, giveUp: AbortSignal): Promise<void> {
  const running = new Promise<void>((resolve, reject) => {
    qmp.on('event', (name) => name === 'RESUME' && resolve());
    const fail = () => reject(new Error('the saved state could not be restored'));
    qmp.on('close', fail);
    giveUp.addEventListener('abort', fail);
    if (giveUp.aborted) fail();
  });
  running.catch(() => {});
  await Promise.all([
    running,
    qmp.execute('migrate-set-capabilities', { capabilities: [{ capability: 'x-ignore-shared', state: true }] }),
    qmp.execute('migrate-set-parameters', { 'announce-rounds': 0 }),
    qmp.execute('migrate-incoming', { uri: `fd:${QEMU_FDS.state}` }),
  ]);
}

function launchFailure(error: unknown, failure: string | undefined): ServiceError {
  if (error instanceof ServiceError) return error;
  if (isDiskFull(error) || /No space left/.test(failure ?? '')) return diskFull(error);
  const why = failure ?? (error instanceof Error ? error.message : 'QEMU does not answer');
  return new ServiceError('host_unavailable', `the host cannot start machines: ${why}`, {
    retryAfterSec: 30,
    cause: error,
  });
}

/**
 * Identifies the exact build of the program. A distribution's update may keep the version number, so size and
 * modification time are compared.
 */
function buildOf(qemuPath: string): unknown {
  const { size, mtimeMs } = statSync(qemuPath);
  return [qemuPath, size, mtimeMs];
}

const SOME_BOOT = { kind: 'boot', kernelPath: '', initramfsPath: '', memoryPath: '/memory', isBare: true } as const;
const SOME_RESTORE = {
  kind: 'restore',
  statePath: '',
  memoryFd: -1,
  templateKey: '',
} as const;

/** Our arguments for QEMU, with placeholders for everything that belongs to one machine. */
function argumentsOf(host: QemuHost, start: VmSpec['start']): string[] {
  const spec: VmSpec = {
    vmId: '',
    vcpus: 1,
    memoryMb: 1,
    diskPath: '',
    imagePath: '',
    layerPaths: [],
    runDir: '',
    nic: { kind: 'tap', mac: '', tapName: '' },
    start,
  };
  return qemuArgs(spec, { ...host, tscKhz: 0 });
}
