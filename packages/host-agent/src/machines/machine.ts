// One machine of this host, as the agent's other parts see it. Every change goes through the machine's queue, one after
// the other. Reports can be read at any time. The files of its parts carry out the changes: lifecycle.ts (VM and
// status), machine-disk.ts, machine-volumes.ts, machine-jobs.ts and record-book.ts.
import { mkdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type {
  EnsureMachine,
  HostKeptOutput,
  HostSnapshot,
  JobReport,
  MachineReport,
  StartJob,
  TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import type { GuestStream } from '../guest/guest-stream.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { withTerminalDefaults } from '../images/image-exec.ts';
import type { Job } from '../jobs/job.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { Lifecycle, type MachineParts } from './lifecycle.ts';
import { MachineDisk } from './machine-disk.ts';
import type { MachineHost, NewMachine } from './machine-host.ts';
import { MachineJobs } from './machine-jobs.ts';
import { CONNECT_STREAM, MachinePorts } from './machine-ports.ts';
import { MachineVm } from './machine-vm.ts';
import { checkVolumes, MachineVolumes } from './machine-volumes.ts';
import type { Origin } from './origin.ts';
import { type MachineRecord, NEW_DISK, readMachineRecord } from './record.ts';
import { RecordBook } from './record-book.ts';

export class Machine {
  readonly id: string;
  readonly #host: MachineHost;
  readonly #dir: string;
  readonly #parts: MachineParts;
  readonly #lifecycle: Lifecycle;
  readonly #ports: MachinePorts;
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(id: string, host: MachineHost, record: MachineRecord) {
    this.id = id;
    this.#host = host;
    this.#dir = join(host.machinesDir, id);
    const enqueue = (work: () => Promise<void>) => this.#enqueue(work);
    const book = new RecordBook(id, this.#dir, record, host.log);
    const vm = new MachineVm(id, book, host.log, () => host.metrics.sessionErrors.inc());
    const volumeBook = {
      read: () => book.record.volumes,
      save: (volumes: MachineRecord['volumes']) => book.save({ volumes }),
      note: (volumes: MachineRecord['volumes']) => book.note({ volumes }),
    };
    this.#parts = {
      book,
      vm,
      disk: new MachineDisk(id, host, book, enqueue),
      volumes: new MachineVolumes(id, host.dataVolumes, volumeBook, host.log),
      jobs: new MachineJobs(id, host, book, vm),
    };
    this.#ports = new MachinePorts(host.vms.network, book, vm);
    this.#lifecycle = new Lifecycle({ ...this.#parts, machineId: id, host, enqueue });
  }

  /**
   * Creates a machine that this host does not have yet, without starting it. `origin` returns what the disk is based
   * on. It is called a second time right before the record is written, because the snapshot or volume may have been
   * removed meanwhile. Throws what `origin` throws, and `fleet_capacity` on a full disk.
   */
  static async create(id: string, host: MachineHost, wanted: NewMachine, origin: () => Origin): Promise<Machine> {
    const machine = new Machine(id, host, {
      generation: wanted.generation,
      desired: wanted.desired,
      spec: wanted.spec,
      isAddressOpen: wanted.isAddressOpen,
      systemId: null,
      ...NEW_DISK,
      ...origin(),
      volumes: [],
      status: 'stopped',
      reason: null,
      bootId: host.bootId,
    });
    // If the directory exists, a crash of the host destroyed the machine's record. Keep the disk in it.
    const made = mkdirSync(machine.#dir, { recursive: true, mode: 0o700 });
    try {
      if (made) machine.#parts.jobs.begin();
      else await machine.#parts.jobs.load();
      machine.#parts.disk.begin(origin());
    } catch (error) {
      if (made) await rm(machine.#dir, { recursive: true, force: true });
      throw isDiskFull(error) ? diskFull(error) : error;
    }
    return machine;
  }

  /**
   * Loads a machine that a previous agent created, with its VM if that still runs. Returns undefined when there is no
   * record.
   */
  static async load(id: string, host: MachineHost, vm: Vm | undefined): Promise<Machine | undefined> {
    const record = readMachineRecord(join(host.machinesDir, id));
    if (!record) return undefined;
    const machine = new Machine(id, host, record);
    await machine.#parts.jobs.load();
    await machine.#lifecycle.takeUp(vm);
    return machine;
  }

  report(): MachineReport {
    return this.#lifecycle.report();
  }

  get privateIp(): string {
    return this.#parts.book.record.spec.private_ip;
  }

  get memoryMb(): number {
    return this.#parts.book.record.spec.memory_mb;
  }

  get isRunning(): boolean {
    return this.#parts.book.record.status === 'running';
  }

  /**
   * Brings the machine to the wanted state, and resolves when it is there. Throws `conflict` for an older generation,
   * `fleet_capacity` on a full disk, `host_unavailable` when the machine cannot start, and the errors of {@link
   * MachineVolumes} for volumes that cannot be attached or detached. With `onlyIfRunning`, throws `conflict` and changes
   * nothing when the machine has no VM.
   */
  async ensure(wanted: EnsureMachine, { onlyIfRunning = false } = {}): Promise<MachineReport> {
    const { book, vm, volumes } = this.#parts;
    const { generation, desired, volumes: wantedVolumes = [] } = wanted;
    book.refuseStale(generation);
    checkVolumes(wantedVolumes);
    return this.#enqueue(async () => {
      book.refuseStale(generation);
      if (onlyIfRunning && !vm.current) throw notRunning(this.report());
      if (wanted.restore_snapshot_id !== undefined) await this.#restore(wanted.restore_snapshot_id, generation);
      if (desired === 'running') {
        book.save({ generation, desired });
        if (vm.current) await volumes.bringTo(wantedVolumes, vm.current, vm.findGuest);
        else volumes.assign(wantedVolumes);
        const path = await this.#lifecycle.start();
        return path === undefined ? this.report() : { ...this.report(), start_path: path };
      } else {
        book.note({ generation, desired });
        await this.#lifecycle.stop();
        volumes.assign(wantedVolumes);
      }
      return this.report();
    });
  }

  /**
   * Ends the VM and removes everything that the host has of the machine. If the machine has volumes, or if its disk is
   * kept as volume `keepVolumeId`, the guest powers off first (10 s at most), so that all its writes are on disk. If
   * {@link MachineDisk.keepAs} fails, throws its error, and the disk stays with the machine.
   */
  destroy(generation: number, keepVolumeId?: string): Promise<void> {
    const { book, disk, volumes } = this.#parts;
    book.refuseStale(generation);
    book.raiseGeneration(generation);
    this.#lifecycle.interruptStart();
    const isOutlived = () => keepVolumeId !== undefined || !volumes.isEmpty;
    if (!isOutlived()) this.#lifecycle.interruptGuest();
    return this.#enqueue(async () => {
      if (isOutlived()) await this.#lifecycle.powerOff();
      await this.#lifecycle.tearDown();
      if (keepVolumeId !== undefined) await disk.keepAs(keepVolumeId);
      await rm(this.#dir, { recursive: true, force: true });
      if (book.record.layers.length > 0) this.#host.onLayersLeft();
    });
  }

  /**
   * Returns the record of a stopped machine, for a copy of it on another host. Completes interrupted changes of its disk
   * first. Throws `conflict` when the machine is not stopped or its disk is incomplete.
   */
  describeCopy(): Promise<MachineRecord> {
    const { book, vm, disk } = this.#parts;
    return this.#enqueue(async () => {
      if (!vm.current) disk.settle();
      const { status, reason } = disk.statusWithoutVm(book.record);
      if (vm.current || status !== 'stopped')
        throw new ServiceError('conflict', `the machine is ${status}: ${reason ?? 'only a stopped one can move'}`);
      return book.record;
    });
  }

  /** Whether the machine is still as {@link describeCopy} has returned it. */
  isUnchangedSince(record: MachineRecord): boolean {
    return this.#parts.book.record === record;
  }

  /** Takes a snapshot, see {@link MachineDisk.takeSnapshot}. Throws `conflict` for an older generation. */
  takeSnapshot(snapshotId: string, { generation, memory }: TakeSnapshot): Promise<HostSnapshot> {
    const { book, vm, disk } = this.#parts;
    return this.#enqueue(async () => {
      book.refuseStale(generation);
      const running = vm.current;
      return disk.takeSnapshot(snapshotId, running, await vm.guestIfAny(), memory);
    });
  }

  /** Starts a job, see {@link MachineJobs.start}. */
  startJob(jobId: string, spec: StartJob): Promise<Job> {
    return this.#parts.jobs.start(jobId, spec);
  }

  /** Cancels a job, see {@link MachineJobs.cancel}. */
  cancelJob(jobId: string): Promise<JobReport> {
    return this.#parts.jobs.cancel(jobId);
  }

  /** Returns the job, running or ended. Throws `not_found`. */
  job(jobId: string): Promise<Job> {
    return this.#parts.jobs.get(jobId);
  }

  /**
   * Makes the guest call `name`, see {@link Guest.call}. A new terminal gets the defaults of the image. Throws
   * `conflict` when the machine does not run. The answer is JSON text of a guest that may be hostile.
   */
  async callGuest(name: string, params: string, timeoutMs: number): Promise<string> {
    const { vm, book } = this.#parts;
    const guest = await vm.findGuest();
    const isTerminal = name === 'terminals.open';
    const complete = isTerminal ? withTerminalDefaults(params, book.record.image.exec) : params;
    return this.#host.tracing.span(`guest.call ${name}`, {}, () => guest.call(name, complete, timeoutMs));
  }

  /**
   * Opens a two-way stream with the guest agent, or with a port of the machine, see {@link MachinePorts.connect}. Throws
   * `conflict` when the machine does not run.
   */
  async openStream(name: string, params: string): Promise<GuestStream> {
    if (name === CONNECT_STREAM) return this.#ports.connect(params);
    const guest = await this.#parts.vm.findGuest();
    return this.#host.tracing.span(`guest.stream ${name}`, {}, () => guest.openStream(name, params));
  }

  keptOutput(): HostKeptOutput {
    return this.#parts.jobs.keptOutput();
  }

  runningJobs(): JobReport[] {
    return this.#parts.jobs.running();
  }

  /** Call it when the agent ends. Closes the session. The VM goes on. */
  async release(): Promise<void> {
    this.#parts.vm.closeSession();
    await this.#parts.jobs.release();
  }

  /**
   * Restores the disk to a snapshot, at most once for each generation. Ends the VM first. If volumes are attached, the
   * guest powers off before that, so that their data is complete. If there is no such snapshot, throws `conflict` and
   * changes nothing.
   */
  async #restore(snapshotId: string, generation: number): Promise<void> {
    const { book, disk, vm, volumes } = this.#parts;
    if (book.record.restoredGeneration >= generation) return;
    disk.checkRestore(snapshotId);
    // The machine would not boot again on a full disk, so refuse the restore while it still runs.
    if (vm.current) this.#host.room.refuseWhenShort();
    book.saveDurably({ generation });
    if (!volumes.isEmpty) await this.#lifecycle.powerOff();
    await this.#lifecycle.tearDown();
    try {
      disk.restore(snapshotId, generation);
    } catch (error) {
      this.#lifecycle.tellStatus('stopped', 'its disk could not be restored');
      throw error;
    }
    this.#host.onLayersLeft();
  }

  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => {});
    return result;
  }
}

function notRunning({ status, reason }: MachineReport): ServiceError {
  return new ServiceError(
    'conflict',
    `the machine does not run: it is ${status}${reason === null ? '' : `: ${reason}`}`,
  );
}
