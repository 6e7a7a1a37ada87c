// A hypervisor without real VMs. Tests use it to make any step fail or hang. The end-to-end tests check the same
// behaviour with real VMs.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { basename, dirname } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type {
  Guest,
  GuestIdentity,
  GuestJob,
  GuestLease,
  JobFrame,
  JobSpec,
  StreamOffsets,
  VolumeMount,
  WarmUpProgram,
} from '../../src/guest/guest.ts';
import type {
  Hypervisor,
  HypervisorInventory,
  MemoryPlace,
  PluggedFile,
  Restore,
  SavedMemory,
  Vm,
  VmExit,
  VmSpec,
} from '../../src/hypervisor/driver.ts';
import { never } from './mortal.ts';

export type FaultPoint =
  | 'launch'
  | 'connectGuest'
  | 'warmUp'
  | 'lease'
  | 'setIdentity'
  | 'startJob'
  | 'listJobs'
  | 'mountVolume'
  | 'unmountVolume'
  | 'plugDisk'
  | 'unplugDisk'
  | 'freeze'
  | 'thaw'
  | 'holdProcesses'
  | 'releaseProcesses'
  | 'saveDevices'
  | 'saveMemory'
  | 'completeMemory'
  | 'pause'
  | 'resume'
  | 'growDisk'
  | 'stageDisk'
  | 'switchDisk'
  | 'isDiskSwitched'
  | 'unstageDisk'
  | 'flattenDisk'
  | 'moveTo'
  | 'end'
  | 'attach'
  | 'assign'
  | 'detach';

/**
 * Bytes that a template's memory file has at a known position, so that a restore can check that it got the right file.
 */
const MARK = Buffer.alloc(4096, 'sandbar');
const MARK_AT = 3 * 4096;
/** Fake pids start above every pid that the kernel assigns, so that a signal never hits a real process. */
const FIRST_PID = 100_000_000;

export class FakeHypervisor implements Hypervisor {
  readonly isolation = 'emulated';
  fingerprint = 'fake';
  resumeFingerprint = 'fake';
  /** Running VMs by the name of their run directory: the machine's id, or the pool's name for a clone. */
  readonly running = new Map<string, FakeVm>();
  readonly launched: VmSpec[] = [];
  /** Each entry makes the next call of that step fail once. */
  readonly faults: FaultPoint[] = [];
  /** Every call of a step, oldest first. */
  readonly passed: FaultPoint[] = [];
  /** Descriptions of steps that should never have happened. */
  readonly violations: string[] = [];
  /** Called before and after each step. If it returns true, the agent dies at that point. */
  isFatal: (point: FaultPoint, when: 'before' | 'after') => boolean = () => false;
  /** Whether this call of the step fails. Tests use it for faults that depend on earlier steps. */
  isFaulty: (point: FaultPoint, isClone: boolean) => boolean = () => false;
  /** Returns the error of a failing step. */
  newFault: (point: FaultPoint) => Error = (point) => new Error(`forced fault: ${point}`);
  /** Returns the address that the network has assigned to a VM. */
  addressOf: ((vmId: string) => string | undefined) | undefined;
  /** If true, a VM from a memory snapshot still holds its processes when it gets its new identity, as it should. */
  staysHeld = true;
  readonly #holds = new Map<FaultPoint, Promise<void>>();

  reserveUid(): undefined {
    return undefined;
  }

  launch(spec: VmSpec): Promise<Vm> {
    const start = async () => {
      if (spec.start.kind === 'restore') {
        await spec.start.memoryReady;
        this.#checkTemplate(spec.start);
      }
      mkdirSync(spec.runDir, { recursive: true });
      if (spec.start.kind === 'boot' && spec.start.memoryPath) writeMark(spec.start.memoryPath);
      this.launched.push(spec);
      const vm = new FakeVm(this, spec, FIRST_PID + this.launched.length);
      this.running.set(vm.name, vm);
      vm.checkAddress('launch');
      return vm;
    };
    return this.step('launch', start, spec.start.kind === 'restore');
  }

  async release(vmId?: string): Promise<void> {
    for (const [name, vm] of this.running) if (vm.vmId === vmId) this.running.delete(name);
  }

  inventory(): HypervisorInventory {
    const vms = [...this.running.values()];
    const ids = vms.map(({ vmId }) => vmId);
    const processes = vms.map(({ pid, runDir }) => ({
      pid,
      cwd: runDir,
      executable: 'qemu-system-fake',
      startTicks: '',
    }));
    return { processes, cgroups: ids, records: ids };
  }

  /** Returns the running VMs. Like the real hypervisor, it first drops VMs whose run directory has disappeared. */
  async adopt(): Promise<Vm[]> {
    for (const [name, vm] of this.running) if (!existsSync(vm.runDir)) this.running.delete(name);
    return [...this.running.values()];
  }

  /** Makes each call of step `point` wait until the test calls the returned function. */
  hold(point: FaultPoint): () => void {
    let release = () => {};
    this.#holds.set(
      point,
      new Promise((resolve) => {
        release = resolve;
      }),
    );
    return () => {
      this.#holds.delete(point);
      release();
    };
  }

  async step<T>(point: FaultPoint, effect: () => T | Promise<T>, isClone = false): Promise<T> {
    this.passed.push(point);
    if (this.isFatal(point, 'before')) return never;
    await this.#holds.get(point);
    this.fault(point, isClone);
    const result = await effect();
    return this.isFatal(point, 'after') ? never : result;
  }

  fault(point: FaultPoint, isClone = false): void {
    const at = this.faults.indexOf(point);
    if (at >= 0) this.faults.splice(at, 1);
    if (at >= 0 || this.isFaulty(point, isClone)) throw this.newFault(point);
  }

  /**
   * Records a violation unless the descriptor refers to a template's memory file. If the agent had closed it too early,
   * the number could belong to another file, and the guest would get that file's content as its memory.
   */
  #checkTemplate({ memoryFd, statePath }: Restore): void {
    const found = Buffer.alloc(MARK.length);
    try {
      readSync(memoryFd, found, 0, found.length, MARK_AT);
    } catch {}
    if (!found.equals(MARK)) this.violations.push('a VM was restored from memory that is no template');
    if (!readFileSync(statePath, 'utf8').startsWith('devices of')) throw new Error('the state cannot be loaded');
  }
}

function writeMark(path: string): void {
  const fd = openSync(path, 'r+');
  writeSync(fd, MARK, 0, MARK.length, MARK_AT);
  closeSync(fd);
}

export class FakeVm implements Vm {
  readonly vmId: string;
  readonly pid: number;
  readonly templateKey: string | undefined;
  readonly exited: Promise<VmExit>;
  /** Whether the VM's disk is based on layers, as for a machine from a snapshot. */
  readonly hasLayers: boolean;
  readonly jobs = new Map<string, FakeJob>();
  /** The plugged disks, by slot. */
  readonly plugged = new Map<number, PluggedFile>();
  /** The volumes mounted in the guest, by id. */
  readonly mounts = new Map<string, VolumeMount>();
  /** What keeps a mounted volume busy, by volume id. Unmounting such a volume is refused with this text. */
  readonly holders = new Map<string, string>();
  isFrozen = false;
  /** Number of memory saves that were neither completed nor abandoned. */
  savesUnderWay = 0;
  areProcessesHeld = false;
  runDir: string;
  isHeld = false;
  isInBackground = false;
  diskBytes: number | undefined;
  identity: GuestIdentity | undefined;
  lease: GuestLease | undefined;
  session: FakeGuest | undefined;
  /** Number of sessions opened so far. */
  sessions = 0;
  /**
   * The layer below the overlay that the guest writes to. Undefined while the guest still writes to its original disk.
   */
  switchedTo: string | undefined;
  /** Whether the guest was frozen when its disk was last switched. */
  wasFrozen = false;
  /** Ends the disk copy that is running. `isFlat` says whether the copy is complete. */
  endFlatten: ((isFlat: boolean) => void) | undefined;
  readonly #hypervisor: FakeHypervisor;
  #exit!: (exit: VmExit) => void;
  /** The open disk file. It stays open as in QEMU, so it refers to the same file after a rename. */
  #diskFd: number | undefined;
  #staged: { layerId: string; fd: number } | undefined;

  constructor(hypervisor: FakeHypervisor, { vmId, runDir, start, diskPath, layerPaths }: VmSpec, pid = 0) {
    this.#hypervisor = hypervisor;
    this.pid = pid;
    this.vmId = vmId;
    this.runDir = runDir;
    this.hasLayers = layerPaths.length > 0;
    this.#diskFd = existsSync(diskPath) ? openSync(diskPath, 'a') : undefined;
    this.templateKey = start.kind === 'restore' ? start.templateKey : undefined;
    this.areProcessesHeld = this.isResumed && hypervisor.staysHeld;
    this.exited = new Promise((resolve) => {
      this.#exit = resolve;
    });
  }

  /** Whether the VM was restored from a memory snapshot. */
  get isResumed(): boolean {
    return this.templateKey?.startsWith('snapshot-') ?? false;
  }

  get name(): string {
    return basename(this.runDir);
  }

  /** Opens a session with the guest. Like QEMU's socket, it serves no second client while the first is connected. */
  async connectGuest(signal?: AbortSignal): Promise<Guest> {
    const connecting = this.step('connectGuest', () => {
      signal?.throwIfAborted();
      if (this.session?.isOpen) throw new Error('the port is taken by an earlier session');
      if (this.isHeld) throw new Error('a paused guest answers nobody');
      this.sessions++;
      this.session = new FakeGuest(this, this.#hypervisor);
      return this.session;
    });
    connecting.catch(() => {});
    const aborted = signal && once(signal, 'abort').then(() => Promise.reject(signal.reason));
    return aborted ? Promise.race([connecting, aborted]) : connecting;
  }

  step<T>(point: FaultPoint, effect: () => T | Promise<T>): Promise<T> {
    return this.#hypervisor.step(point, effect, this.templateKey !== undefined);
  }

  /**
   * Records a violation when a machine's VM runs before its firewall rules exist, or when the VM of a template has an
   * address. A clone in the pool gets one before it is ready.
   */
  checkAddress(step: string): void {
    const { addressOf } = this.#hypervisor;
    const owner = basename(dirname(this.runDir));
    if (addressOf && owner !== 'pool' && (addressOf(this.vmId) !== undefined) !== (owner === 'machines'))
      this.#hypervisor.violations.push(`${step} of a VM in ${this.runDir} with address ${addressOf(this.vmId)}`);
  }

  async readConsole(): Promise<string> {
    return 'fake console';
  }

  pause(): Promise<void> {
    return this.step('pause', () => {
      this.isHeld = true;
    });
  }

  resume(): Promise<void> {
    return this.step('resume', () => {
      this.checkAddress('resume');
      this.isHeld = false;
    });
  }

  async isPaused(): Promise<boolean> {
    return this.isHeld;
  }

  async hold(): Promise<void> {}

  async letGo(): Promise<void> {}

  growDisk(bytes: number): Promise<void> {
    return this.#hypervisor.step('growDisk', () => {
      this.diskBytes = bytes;
    });
  }

  /** Writes to the root disk as the guest would. */
  write(text: string): void {
    assert.ok(!this.isFrozen && this.#diskFd !== undefined, 'the guest cannot write');
    writeSync(this.#diskFd, text);
  }

  stageDisk(path: string, layerId: string): Promise<void> {
    return this.step('stageDisk', () => {
      this.#staged = { layerId, fd: openSync(path, 'a') };
    });
  }

  switchDisk(layerId: string): Promise<void> {
    return this.step('switchDisk', () => {
      assert.equal(this.#staged?.layerId, layerId);
      this.wasFrozen = this.isFrozen;
      this.switchedTo = layerId;
      this.#diskFd = this.#staged?.fd;
      this.#staged = undefined;
    });
  }

  isDiskSwitched(layerId: string): Promise<boolean> {
    return this.step('isDiskSwitched', () => this.switchedTo === layerId);
  }

  unstageDisk(): Promise<void> {
    return this.step('unstageDisk', () => {
      this.#staged = undefined;
    });
  }

  flattenDisk(): Promise<boolean> {
    return this.step(
      'flattenDisk',
      () =>
        new Promise<boolean>((resolve) => {
          this.endFlatten = resolve;
        }),
    );
  }

  async stopFlatten(): Promise<void> {
    this.endFlatten?.(false);
  }

  saveDevices(path: string): Promise<void> {
    return this.#hypervisor.step('saveDevices', () => writeFileSync(path, `devices of ${this.vmId}`));
  }

  /** Saves the memory. Like QEMU, the VM goes on when `whileStopped` fails. */
  saveMemory(place: MemoryPlace, whileStopped: () => Promise<void>): Promise<SavedMemory> {
    return this.step('saveMemory', async () => {
      writeFileSync(place.memoryPath, '', { flag: 'wx' });
      truncateSync(place.memoryPath, place.bytes);
      writeMark(place.memoryPath);
      writeFileSync(place.statePath, `devices of ${this.vmId}`);
      this.isHeld = true;
      await whileStopped().finally(() => {
        this.isHeld = false;
      });
      this.savesUnderWay++;
      const end = async () => void this.savesUnderWay--;
      return { complete: () => this.step('completeMemory', () => {}).finally(end), abandon: end };
    });
  }

  plugDisk(disk: PluggedFile): Promise<void> {
    return this.step('plugDisk', () => {
      for (const vm of this.#hypervisor.running.values())
        for (const { file } of vm.plugged.values())
          if (file === disk.file) this.#hypervisor.violations.push(`${file} was plugged in twice`);
      if (!existsSync(disk.file)) throw new Error('no such file');
      this.plugged.set(disk.slot, disk);
    });
  }

  unplugDisk(slot: number): Promise<void> {
    return this.step('unplugDisk', () => {
      if ([...this.mounts.values()].some((mount) => mount.slot === slot))
        this.#hypervisor.violations.push('a mounted volume was unplugged');
      this.plugged.delete(slot);
    });
  }

  async pluggedDisks(): Promise<Map<number, string>> {
    return new Map([...this.plugged].map(([slot, { serial }]) => [slot, serial]));
  }

  /**
   * Moves the VM to another run directory. If the agent is to die here, it throws, because a synchronous call cannot
   * wait forever. The dead agent's reaction to the error has no effect.
   */
  moveTo(runDir: string): void {
    const { passed, running, isFatal } = this.#hypervisor;
    passed.push('moveTo');
    if (isFatal('moveTo', 'before')) throw new Error('the agent died');
    this.#hypervisor.fault('moveTo');
    renameSync(this.runDir, runDir);
    running.delete(this.name);
    this.runDir = runDir;
    running.set(this.name, this);
    if (isFatal('moveTo', 'after')) throw new Error('the agent died');
  }

  setBackground(isBackground: boolean): void {
    this.isInBackground = isBackground;
  }

  end(): Promise<void> {
    return this.#hypervisor.step('end', () => {
      if (this.#hypervisor.running.get(this.name) === this) this.#hypervisor.running.delete(this.name);
      this.session?.close();
    });
  }

  exitByItself(exit: VmExit): void {
    this.#exit(exit);
  }

  /** Simulates a killed QEMU process. */
  crash(): void {
    this.session?.close();
    this.#exit({ cause: 'died', reason: 'killed' });
  }
}

/** A job whose output and end the test controls. */
export class FakeJob {
  /** What the guest was asked to run. */
  readonly spec: JobSpec;
  readonly changes = new EventEmitter<{ change: [] }>().setMaxListeners(0);
  readonly output: Record<OutputStream, Buffer> = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  end: GuestJob | undefined;
  acknowledged: StreamOffsets = { stdout: 0, stderr: 0 };

  constructor(spec: JobSpec) {
    this.spec = spec;
  }

  print(stream: OutputStream, text: string): void {
    this.output[stream] = Buffer.concat([this.output[stream], Buffer.from(text)]);
    this.changes.emit('change');
  }

  finish(id: string, outcome: Partial<GuestJob> = {}): void {
    this.end = {
      id,
      status: 'exited',
      exitCode: 0,
      signal: null,
      stdoutBytes: this.output.stdout.length,
      stderrBytes: this.output.stderr.length,
      truncated: false,
      ...outcome,
    };
    this.changes.emit('change');
  }
}

export class FakeGuest implements Guest {
  readonly closed: Promise<void>;
  readonly #vm: FakeVm;
  readonly #hypervisor: FakeHypervisor;
  readonly #over = new AbortController();

  constructor(vm: FakeVm, hypervisor: FakeHypervisor) {
    this.#vm = vm;
    this.#hypervisor = hypervisor;
    this.closed = new Promise((resolve) => this.#over.signal.addEventListener('abort', () => resolve()));
  }

  warmUp(program: WarmUpProgram): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('warmUp', () => {
        this.#vm.checkAddress('warmUp');
        if (program === 'shell' && this.#vm.hasLayers)
          this.#hypervisor.violations.push("a program of a user's disk ran before the identity");
      }),
    );
  }

  lease(lease: GuestLease): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('lease', () => {
        this.#over.signal.throwIfAborted();
        if (this.#vm.identity) throw new ServiceError('conflict', 'it has an identity');
        if (this.#hypervisor.addressOf && !lease.address.startsWith(`${this.#hypervisor.addressOf(this.#vm.vmId)}/`))
          this.#hypervisor.violations.push('a lease of another address than the network has');
        this.#vm.lease = lease;
      }),
    );
  }

  setIdentity(identity: GuestIdentity): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('setIdentity', () => {
        this.#over.signal.throwIfAborted();
        this.#vm.checkAddress('setIdentity');
        if (this.#vm.isResumed !== (identity.wasHeld === true))
          this.#hypervisor.violations.push(
            'a guest was not asked whether its processes were held, or was without reason',
          );
        if (identity.wasHeld && !this.#vm.areProcessesHeld) throw new ServiceError('conflict', 'not frozen');
        if (identity.wasHeld || (this.#vm.identity && this.#vm.identity.machineId !== identity.machineId)) {
          this.#vm.jobs.clear();
          this.#vm.mounts.clear();
          this.#vm.areProcessesHeld = false;
        }
        this.#vm.identity = identity;
      }),
    );
  }

  mountVolume(mount: VolumeMount): Promise<void> {
    return this.#inGuest('mountVolume', () => {
      const { mounts } = this.#vm;
      const own = mounts.get(mount.volumeId);
      if (own && (own.path !== mount.path || own.slot !== mount.slot))
        throw new ServiceError('conflict', `the volume is mounted at ${own.path}`);
      if (this.#vm.plugged.get(mount.slot)?.serial !== mount.volumeId)
        throw new ServiceError('conflict', 'the disk does not show up');
      const isTaken = [...mounts.values()].some(
        ({ volumeId, path, slot }) => volumeId !== mount.volumeId && (path === mount.path || slot === mount.slot),
      );
      if (isTaken) throw new ServiceError('conflict', 'another volume is there');
      mounts.set(mount.volumeId, mount);
    });
  }

  unmountVolume(volumeId: string): Promise<void> {
    return this.#inGuest('unmountVolume', () => {
      const holder = this.#vm.holders.get(volumeId);
      if (holder !== undefined) throw new ServiceError('conflict', `the volume is busy: ${holder}`);
      this.#vm.mounts.delete(volumeId);
    });
  }

  /** Freezes the guest's file systems until the test thaws them. Unlike the real guest, it has no time limit. */
  freeze(): Promise<void> {
    return this.#inGuest('freeze', () => {
      if (this.#vm.isFrozen) throw new ServiceError('conflict', 'the root file system is frozen already');
      this.#vm.isFrozen = true;
    });
  }

  thaw(): Promise<void> {
    return this.#inGuest('thaw', () => {
      if (!this.#vm.isFrozen) throw new ServiceError('conflict', 'the root file system is not frozen');
      this.#vm.isFrozen = false;
    });
  }

  /** Holds the guest's processes until the test releases them. Unlike the real guest, it has no time limit. */
  holdProcesses(): Promise<void> {
    return this.#inGuest('holdProcesses', () => {
      if (this.#vm.areProcessesHeld) throw new ServiceError('conflict', 'the processes are held already');
      this.#vm.areProcessesHeld = true;
    });
  }

  releaseProcesses(): Promise<void> {
    return this.#inGuest('releaseProcesses', () => {
      if (!this.#vm.areProcessesHeld) throw new ServiceError('conflict', 'the processes are not held');
      this.#vm.areProcessesHeld = false;
    });
  }

  /**
   * Runs a step in the guest. Without an open session the step has no effect. If the session ends first, the answer is
   * lost.
   */
  #inGuest(point: FaultPoint, effect: () => void): Promise<void> {
    return this.#whileOpen(
      this.#vm.step(point, () => {
        this.#over.signal.throwIfAborted();
        effect();
      }),
    );
  }

  #whileOpen(work: Promise<void>): Promise<void> {
    work.catch(() => {});
    return Promise.race([work, this.closed.then(() => Promise.reject(new Error('the session is over')))]);
  }

  async startJob(jobId: string, spec: JobSpec): Promise<AsyncIterable<JobFrame>> {
    this.#over.signal.throwIfAborted();
    if (!this.#vm.jobs.has(jobId)) this.#vm.jobs.set(jobId, new FakeJob(spec));
    this.#hypervisor.fault('startJob');
    return this.followJob(jobId, { stdout: 0, stderr: 0 });
  }

  async followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>> {
    const job = this.#vm.jobs.get(jobId);
    if (!job) throw new ServiceError('not_found', 'no such job');
    return this.#frames(job, { ...offsets });
  }

  async acknowledgeOutput(jobId: string, offsets: StreamOffsets): Promise<void> {
    const job = this.#vm.jobs.get(jobId);
    if (job) job.acknowledged = offsets;
  }

  async cancelJob(jobId: string): Promise<void> {
    this.#vm.jobs.get(jobId)?.finish(jobId, { status: 'canceled', exitCode: null, signal: 'SIGTERM' });
  }

  get isOpen(): boolean {
    return !this.#over.signal.aborted;
  }

  async listJobs(): Promise<GuestJob[]> {
    this.#hypervisor.fault('listJobs');
    return [...this.#vm.jobs].map(([id, job]) => job.end ?? runningJob(id));
  }

  async forgetJob(jobId: string): Promise<void> {
    this.#vm.jobs.delete(jobId);
  }

  async powerOff(): Promise<void> {
    this.#vm.exitByItself({ cause: 'powered-off', reason: 'asked to' });
  }

  close(): void {
    this.#over.abort();
  }

  async *#frames(job: FakeJob, at: StreamOffsets): AsyncGenerator<JobFrame> {
    for (;;) {
      const before = at.stdout + at.stderr;
      for (const stream of ['stdout', 'stderr'] as const) {
        const bytes = job.output[stream].subarray(at[stream]);
        if (bytes.length > 0) yield { type: 'output', stream, offset: at[stream], bytes };
        at[stream] += bytes.length;
      }
      if (at.stdout + at.stderr > before) continue;
      if (job.end) return yield { type: 'end', job: job.end };
      await once(job.changes, 'change', { signal: this.#over.signal });
    }
  }
}

function runningJob(id: string): GuestJob {
  return { id, status: 'running', exitCode: null, signal: null, stdoutBytes: 0, stderrBytes: 0, truncated: false };
}
