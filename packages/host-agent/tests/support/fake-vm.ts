// A VM of the fake hypervisor. It remembers what was done to it, and records a violation when a step comes too early.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, fstatSync, openSync, renameSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest, GuestIdentity, GuestLease, VolumeMount } from '../../src/guest/guest.ts';
import type { GuestStream } from '../../src/guest/guest-stream.ts';
import type { MemoryPlace, MemorySave, PluggedFile, Vm, VmExit, VmSpec } from '../../src/hypervisor/driver.ts';
import type { ResumeNeeds } from '../../src/hypervisor/resume-needs.ts';
import { sumOfSparseFile } from '../../src/storage/sparse-file.ts';
import { FakeGuest, type FakeJob } from './fake-guest.ts';
import { type FakeHypervisor, type FaultPoint, needsOf } from './fake-hypervisor.ts';
import { writeMark } from './marked-memory.ts';

export class FakeVm implements Vm {
  readonly vmId: string;
  readonly pid: number;
  readonly templateKey: string | undefined;
  readonly exited: Promise<VmExit>;
  /** Whether the VM's disk is based on layers, as for a machine from a snapshot. */
  readonly hasLayers: boolean;
  /** Whether the guest was told to wait for its disk, and can do that. */
  readonly isBare: boolean;
  readonly jobs = new Map<string, FakeJob>();
  /** The plugged disks, by slot. */
  readonly plugged = new Map<number, PluggedFile>();
  /** The volumes mounted in the guest, by id. */
  readonly mounts = new Map<string, VolumeMount>();
  /** What keeps a mounted volume busy, by volume id. Unmounting such a volume is refused with this text. */
  readonly holders = new Map<string, string>();
  isFrozen = false;
  /** Answers the guest calls of the machine. */
  onCall: (name: string, params: string) => Promise<string> = async () => {
    throw new ServiceError('not_found', 'no such request');
  };
  /** Opens the two-way streams of the machine. */
  onStream: (name: string, params: string) => Promise<GuestStream> = async () => {
    throw new ServiceError('not_found', 'no such request');
  };
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
  readonly #qemu: string;
  #exit!: (exit: VmExit) => void;
  /** The open disk file. It stays open as in QEMU, so it refers to the same file after a rename. */
  #diskFd: number | undefined;
  #staged: { layerId: string; fd: number } | undefined;

  constructor(hypervisor: FakeHypervisor, { vmId, runDir, start, diskPath, layerPaths }: VmSpec, pid = 0) {
    this.#hypervisor = hypervisor;
    this.#qemu = hypervisor.qemu;
    this.pid = pid;
    this.vmId = vmId;
    this.runDir = runDir;
    this.hasLayers = layerPaths.length > 0;
    this.isBare = start.kind === 'boot' && start.isBare === true && hypervisor.canBeBare;
    this.#diskFd = existsSync(diskPath) ? openSync(diskPath, 'a') : undefined;
    this.templateKey = start.kind === 'restore' ? start.templateKey : undefined;
    this.areProcessesHeld = this.isResumed && hypervisor.staysHeld;
    this.exited = new Promise((resolve) => {
      this.#exit = resolve;
    });
  }

  async resumeNeeds(): Promise<ResumeNeeds> {
    return needsOf(this.#qemu);
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

  /** Identifies the file of the root disk, also after it was renamed. Undefined without a disk. */
  get diskFile(): string | undefined {
    if (this.#diskFd === undefined) return undefined;
    const { dev, ino } = fstatSync(this.#diskFd);
    return `${dev}:${ino}`;
  }

  begin(): Promise<void> {
    return this.step('begin', () => this.checkAddress('begin'));
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

  /** Like QEMU, the VM goes on when `whileStopped` fails. */
  prepareMemory(place: MemoryPlace): Promise<MemorySave> {
    return this.step('prepareMemory', () => {
      writeFileSync(place.memoryPath, '', { flag: 'wx' });
      truncateSync(place.memoryPath, place.bytes);
      this.savesUnderWay++;
      let isOpen = true;
      const abandon = async () => {
        if (isOpen) this.savesUnderWay--;
        isOpen = false;
      };
      return {
        catchUp: () => this.step('catchUpMemory', () => {}),
        save: (whileStopped) =>
          this.step('saveMemory', async () => {
            this.isHeld = true;
            await whileStopped().finally(() => {
              this.isHeld = false;
            });
          }),
        complete: () =>
          this.step('completeMemory', () => {
            writeMark(place.memoryPath);
            writeFileSync(place.statePath, `devices of ${this.vmId}`);
            return sumOfSparseFile(place.memoryPath, place.bytes);
          }).finally(abandon),
        abandon,
      };
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
