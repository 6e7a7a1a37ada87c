// Owns one machine of this host. Every change of the machine goes through its queue, one after the other. Reports can be read
// at any time.
//
//              ensure(running)            identity acknowledged
//   stopped ───────────────────▶ starting ───────────────────▶ running
//      ▲  ▲                         │ cannot boot                │  │
//      │  └─────────────────────────┘                            │  │ its VM dies
//      └──────── ensure(stopped), or the guest powers off ───────┘  ▼
//                                                                 failed
//   When the guest reboots, the machine goes through `starting` again. A destroy is possible in every state.
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type {
  EnsureMachine,
  HostSnapshot,
  JobReport,
  MachineReport,
  StartJob,
  TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm, VmExit } from '../hypervisor/driver.ts';
import { withImageDefaults } from '../images/image-exec.ts';
import type { Job } from '../jobs/job.ts';
import { JobTable } from '../jobs/job-table.ts';
import { macOfIp } from '../network/subnet.ts';
import { CommandError } from '../run-command.ts';
import { settleRunningDisk } from '../snapshots/freeze-disk.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import { takeSnapshot } from '../snapshots/take-snapshot.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';
import { syncPath } from '../storage/durable.ts';
import type { LayerStore } from '../storage/layers.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { writeRecord, writeRecordDurably } from '../storage/record-file.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { VmHost } from '../vms/vm-host.ts';
import type { BootLog } from './boot.ts';
import { Flattening } from './flattening.ts';
import { GuestLink } from './guest-link.ts';
import { keepDisk } from './keep-disk.ts';
import { checkVolumes, MachineVolumes, type VolumeBook } from './machine-volumes.ts';
import { type Origin, usableSnapshot } from './origin.ts';
import { type LeasedSpec, type MachineRecord, NEW_DISK, RECORD, readMachineRecord, statusWithoutVm } from './record.ts';
import { RootDisk, refuseDamaged } from './root-disk.ts';
import type { Starter } from './starter.ts';

/** How long a guest may take to sync and power off before its VM is killed. */
const GRACEFUL_STOP_MS = 10_000;
/** The file with the console output of a VM that died. It is kept so that a person can find the cause. */
const LAST_CONSOLE = 'last-console.log';

/** The parts of the host that all machines share. */
export type MachineHost = {
  vms: VmHost;
  starter: Starter;
  bootId: string;
  machinesDir: string;
  runMachinesDir: string;
  volumes: VolumeStore;
  dataVolumes: DataVolumes;
  layers: LayerStore;
  snapshots: SnapshotStore;
  outputLimitBytes: number;
  log: BootLog & { info(details: object, message: string): void; error(details: object, message: string): void };
  /** Called when the machine no longer needs some layers of its disk, which may be unused now. */
  onLayersLeft(): void;
  onMachineChange(report: MachineReport): void;
  onJobEnd(report: JobReport): void;
};

/** The request for a new machine, with the address that it gets. */
export type NewMachine = EnsureMachine & { spec: LeasedSpec };

export class Machine {
  readonly id: string;
  readonly #host: MachineHost;
  readonly #dir: string;
  readonly #runDir: string;
  readonly #jobs: JobTable;
  readonly #volumes: MachineVolumes;
  readonly #disk: RootDisk;
  readonly #flattening: Flattening;
  #record: MachineRecord;
  #vm: Vm | undefined;
  #link: GuestLink | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #synced: Promise<void> = Promise.resolve();
  /** Aborted by every destroy, so that a boot that is under way stops. */
  readonly #destroying = new AbortController();
  /** Aborted by a destroy that keeps no data, so that it does not wait for the guest to write its files. */
  readonly #discarding = new AbortController();

  private constructor(id: string, host: MachineHost, record: MachineRecord) {
    this.id = id;
    this.#host = host;
    this.#record = record;
    this.#dir = join(host.machinesDir, id);
    this.#runDir = join(host.runMachinesDir, id);
    this.#jobs = new JobTable({
      machineId: id,
      dir: join(this.#dir, 'jobs'),
      outputLimitBytes: host.outputLimitBytes,
      onEnd: (report) => host.onJobEnd(report),
      onDoubt: () => this.#link?.renew(),
      onError: (err, jobId) => host.log.warn({ machine_id: id, job_id: jobId, err }, 'a job could not be followed'),
    });
    const { layers, volumes: rootVolumes } = host;
    this.#disk = new RootDisk({
      dir: this.#dir,
      layers,
      volumes: rootVolumes,
      record: () => this.#record,
      save: (changes) => this.#save(changes, writeRecordDurably),
      saveSoon: (changes) => this.#save(changes),
    });
    this.#flattening = new Flattening({
      machineId: id,
      disk: this.#disk,
      layers,
      enqueue: (work) => this.#enqueue(work),
      onFlat: () => host.onLayersLeft(),
      log: host.log,
    });
    const book: VolumeBook = {
      read: () => this.#record.volumes,
      save: (volumes) => this.#save({ volumes }),
      note: (volumes) => this.#note({ volumes }),
    };
    this.#volumes = new MachineVolumes(id, host.dataVolumes, book, host.log);
  }

  /**
   * Creates a machine that this host does not have yet, without starting it. `origin` is called again right before the
   * record is written, because its snapshot or volume may have been removed meanwhile. Throws what `origin` throws, and
   * `fleet_capacity` on a full disk.
   */
  static async create(id: string, host: MachineHost, wanted: NewMachine, origin: () => Origin): Promise<Machine> {
    const machine = new Machine(id, host, {
      generation: wanted.generation,
      desired: wanted.desired,
      spec: wanted.spec,
      ...NEW_DISK,
      ...origin(),
      volumes: [],
      status: 'stopped',
      reason: null,
      bootId: host.bootId,
    });
    // If the directory exists, a crash of the host destroyed the machine's record. Keep the disk in it.
    const made = await mkdir(machine.#dir, { recursive: true, mode: 0o700 });
    try {
      await machine.#jobs.load();
      machine.#disk.begin(origin());
      if (machine.#record.layers.length > 0) machine.#beginSync();
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
    await machine.#jobs.load();
    await machine.#takeUp(vm);
    return machine;
  }

  report(): MachineReport {
    const { generation, status, reason } = this.#record;
    const { isolation } = this.#host.vms.hypervisor;
    return { machine_id: this.id, generation, status, reason, isolation, private_ip: this.privateIp };
  }

  get privateIp(): string {
    return this.#record.spec.private_ip;
  }

  get isRunning(): boolean {
    return this.#record.status === 'running';
  }

  /**
   * Brings the machine to the wanted state, and resolves when it is there. Throws `conflict` for an older generation,
   * `fleet_capacity` on a full disk, `host_unavailable` when the machine cannot start, and the errors of {@link
   * MachineVolumes} for volumes that cannot be attached or detached.
   */
  async ensure(wanted: EnsureMachine): Promise<MachineReport> {
    this.#refuseStale(wanted.generation);
    const { generation, desired, volumes = [] } = wanted;
    checkVolumes(volumes);
    return this.#enqueue(async () => {
      this.#refuseStale(generation);
      if (wanted.restore_snapshot_id !== undefined) await this.#restore(wanted.restore_snapshot_id, generation);
      if (desired === 'running') {
        this.#save({ generation, desired });
        if (this.#vm) await this.#volumes.bringTo(volumes, this.#vm, this.#findGuest);
        else this.#volumes.assign(volumes);
        await this.#start();
      } else {
        this.#note({ generation, desired });
        await this.#stop();
        this.#volumes.assign(volumes);
      }
      return this.report();
    });
  }

  /**
   * Ends the VM and removes everything that the host has of the machine. If the machine has volumes, or if its disk is
   * kept as volume `keepVolumeId`, the guest powers off first (10 s at most), so that all its writes are on disk. If
   * {@link keepDisk} fails, throws its error, and the disk stays with the machine.
   */
  destroy(generation: number, keepVolumeId?: string): Promise<void> {
    this.#refuseStale(generation);
    this.#record.generation = generation;
    // Stop a boot or a graceful stop that is under way, because this destroy waits for it in the queue.
    this.#destroying.abort();
    const isOutlived = () => keepVolumeId !== undefined || !this.#volumes.isEmpty;
    if (!isOutlived()) {
      this.#discarding.abort();
      // Close the session, so that the destroy does not wait for a guest that does not answer.
      this.#link?.close();
    }
    return this.#enqueue(async () => {
      if (this.#vm && isOutlived()) await this.#powerOff(this.#vm);
      await this.#tearDown();
      if (keepVolumeId !== undefined) await this.#keepDisk(keepVolumeId);
      await rm(this.#dir, { recursive: true, force: true });
      if (this.#record.layers.length > 0) this.#host.onLayersLeft();
    });
  }

  /** Takes a snapshot, see {@link takeSnapshot}. Throws `conflict` for an older generation. */
  takeSnapshot(snapshotId: string, { generation, memory }: TakeSnapshot): Promise<HostSnapshot> {
    return this.#enqueue(async () => {
      this.#refuseStale(generation);
      const vm = this.#vm;
      const guest = await this.#link?.guest();
      if (!vm) refuseDamaged(this.#disk);
      await this.#flattening.stop();
      const subject = {
        machineId: this.id,
        record: () => this.#record,
        disk: this.#disk,
        running: vm && guest && { vm, guest },
      };
      return takeSnapshot(this.#host, snapshotId, subject, memory).finally(() => vm && this.#flattening.begin(vm));
    });
  }

  /**
   * Starts a job, see {@link JobTable.start}. Throws `conflict` when the machine does not run, or when it was booted
   * after `generation`, because the job was then meant for an earlier boot.
   */
  async startJob(jobId: string, { generation, ...spec }: StartJob): Promise<JobReport> {
    const link = this.#runningLink();
    const guest = await link.guest();
    // No other code runs from here until the job is in the job table. So if the machine ends, no job is missed.
    if (this.#link !== link) throw this.#notRunning();
    if (generation < this.#record.bootGeneration)
      throw new ServiceError(
        'conflict',
        'The machine was stopped or changed since the command was sent. Send it again.',
      );
    return this.#jobs.start(jobId, withImageDefaults(spec, this.#record.image.exec), guest);
  }

  async cancelJob(jobId: string): Promise<JobReport> {
    const job = await this.#jobs.get(jobId);
    if (!job.isRunning) return job.report();
    const guest = await this.#runningLink().guest();
    await guest.cancelJob(jobId).catch((error) => {
      // The job ended by itself in the meantime, and the guest has forgotten it.
      if (job.isRunning) throw error;
    });
    return job.report();
  }

  job(jobId: string): Promise<Job> {
    return this.#jobs.get(jobId);
  }

  runningJobs(): JobReport[] {
    return this.#jobs.runningReports();
  }

  /** Call it when the agent ends. Closes the session. The VM goes on. */
  async release(): Promise<void> {
    this.#link?.close();
    await this.#jobs.release();
  }

  #runningLink(): GuestLink {
    if (!this.#link) throw this.#notRunning();
    return this.#link;
  }

  readonly #findGuest = (): Promise<Guest> => this.#runningLink().guest();

  #notRunning(): ServiceError {
    return new ServiceError('conflict', `the machine is ${this.#record.status}, not running`);
  }

  async #start(): Promise<void> {
    if (this.#vm) return;
    try {
      this.#disk.settle();
      refuseDamaged(this.#disk);
      this.#save({ status: 'starting', reason: null });
      this.#host.onMachineChange(this.report());
      const vm = await this.#boot();
      await this.#volumes.plugAll(vm, this.#findGuest, this.#destroying.signal);
      await this.#synced;
      const { generation } = this.#record;
      this.#save({ status: 'running', reason: null, hasDisk: true, resumes: null, bootGeneration: generation });
    } catch (error) {
      const failure = startFailure(error);
      await this.#tearDown();
      this.#tellStatus('stopped', failure.message);
      throw failure;
    }
    this.#host.onMachineChange(this.report());
  }

  async #boot(): Promise<Vm> {
    const { spec, image, resumes } = this.#record;
    const { network } = this.#host.vms;
    const { vm, guest } = await this.#host.starter.start({
      spec,
      image,
      resumes,
      layerPaths: this.#disk.layerPaths,
      diskPath: this.#disk.path,
      runDir: this.#runDir,
      identity: {
        machineId: this.id,
        hostname: spec.hostname,
        address: `${spec.private_ip}/${network.prefix}`,
        gateway: network.gateway,
        nameServers: network.nameServers,
        mac: macOfIp(spec.private_ip),
        mtu: network.mtu,
      },
      abort: this.#destroying.signal,
    });
    this.#hold(vm, guest);
    return vm;
  }

  async #takeUp(vm: Vm | undefined): Promise<void> {
    if (vm && this.#record.status === 'running') {
      await settleRunningDisk(this.#disk, vm).catch((err) => this.#warn(err, 'a freeze of a disk is not settled yet'));
      await this.#volumes.takeUp(vm);
      this.#hold(vm);
      this.#letGuestGoOn();
      return;
    }
    // The previous agent died while it started this VM. The guest may lack its identity, so end the VM.
    this.#vm = vm;
    const { status, reason } = statusWithoutVm(this.#record, this.#host.bootId);
    await this.#tearDown();
    this.#note({ ...this.#withoutVm(status, reason), bootId: this.#host.bootId });
  }

  /**
   * Thaws a guest that is still frozen because the previous agent died during a snapshot. Otherwise the guest would
   * stay frozen until its own time limit.
   */
  #letGuestGoOn(): void {
    const goOn = (guest: Guest) => Promise.allSettled([guest.thaw(), guest.releaseProcesses()]);
    this.#link
      ?.guest()
      .then(goOn)
      .catch(() => {});
  }

  #hold(vm: Vm, guest?: Guest): void {
    this.#vm = vm;
    this.#link = new GuestLink(
      vm,
      (session) => this.#jobs.resume(session),
      (err) => this.#host.log.warn({ machine_id: this.id, err }, 'no session with the guest agent'),
      guest,
    );
    vm.exited
      .then((exit) => this.#enqueue(() => this.#vmEnded(vm, exit)))
      .catch((err) => this.#host.log.error({ machine_id: this.id, err }, 'the end of a VM was not dealt with'));
    this.#flattening.begin(vm);
  }

  /** Handles a VM that ended although the host did not end it. */
  async #vmEnded(vm: Vm, exit: VmExit): Promise<void> {
    if (this.#vm !== vm) return;
    this.#host.log.info({ machine_id: this.id, cause: exit.cause, reason: exit.reason }, 'a machine ended by itself');
    await this.#keepConsole(vm);
    await this.#tearDown();
    if (exit.cause === 'rebooted') {
      await this.#start().catch((error) =>
        this.#tellStatus('failed', `it did not come back from a reboot: ${error.message}`),
      );
      return;
    }
    this.#tellStatus(exit.cause === 'powered-off' ? 'stopped' : 'failed', exit.reason);
  }

  /**
   * Keeps the console output of a VM that died, if the disk has room. If not, the machine is still reported as failed.
   */
  async #keepConsole(vm: Vm): Promise<void> {
    const file = join(this.#dir, LAST_CONSOLE);
    try {
      writeFileSync(file, await vm.readConsole(), { mode: 0o600 });
    } catch (err) {
      rmSync(file, { force: true });
      this.#host.log.warn({ machine_id: this.id, err }, 'the last console was not kept');
    }
  }

  async #stop(): Promise<void> {
    const vm = this.#vm;
    if (vm) await this.#powerOff(vm);
    await this.#tearDown();
    this.#tellStatus('stopped', null);
  }

  async #powerOff(vm: Vm): Promise<void> {
    const timer = new AbortController();
    const patience = AbortSignal.any([timer.signal, this.#discarding.signal]);
    const asked = this.#link?.guest().then((guest) => guest.powerOff());
    asked?.catch((err) =>
      this.#host.log.warn({ machine_id: this.id, err }, 'the guest could not be asked to power off'),
    );
    await Promise.race([vm.exited, delay(GRACEFUL_STOP_MS, undefined, { signal: patience }).catch(() => {})]);
    timer.abort();
  }

  /** Ends the VM, its sessions and its jobs, and removes its run directory. The disk stays. */
  async #tearDown(): Promise<void> {
    const vm = this.#vm;
    this.#vm = undefined;
    this.#link?.close();
    this.#link = undefined;
    this.#flattening.forget();
    if (vm) {
      await this.#host.vms.discard(vm);
      this.#volumes.letGo();
    }
    await this.#jobs.loseAll();
    await rm(this.#runDir, { recursive: true, force: true });
    try {
      this.#disk.settle();
    } catch (err) {
      this.#warn(err, 'a freeze of a disk is not settled yet');
    }
  }

  /**
   * Makes a volume of the machine's disk. It records the generation first, so that a later agent also refuses an ensure
   * that arrives late and would make a second disk.
   */
  async #keepDisk(volumeId: string): Promise<void> {
    this.#save({ generation: this.#record.generation, ...this.#withoutVm('stopped', null) });
    await keepDisk(this.#host.volumes, volumeId, { id: this.id, disk: this.#disk }, () => this.#record);
  }

  /**
   * Restores the disk to a snapshot, at most once for each generation. Ends the VM first. If volumes are attached, the
   * guest powers off before that, so that their data is complete. If there is no such snapshot, throws `conflict` and
   * changes nothing.
   */
  async #restore(snapshotId: string, generation: number): Promise<void> {
    if (this.#record.restoredGeneration >= generation) return;
    const { snapshots } = this.#host;
    usableSnapshot(snapshots, snapshotId, this.#record.spec);
    this.#save({ generation }, writeRecordDurably);
    if (this.#vm && !this.#volumes.isEmpty) await this.#powerOff(this.#vm);
    await this.#tearDown();
    try {
      const { image, layers } = usableSnapshot(snapshots, snapshotId, this.#record.spec);
      this.#disk.replace({ image, layers, restoredGeneration: generation, status: 'stopped', reason: null });
    } catch (error) {
      this.#tellStatus('stopped', 'its disk could not be restored');
      throw error;
    }
    this.#host.onLayersLeft();
  }

  /**
   * Sets and reports the status of a machine without a VM. If the disk is full and the status cannot be recorded, the
   * next agent determines it again.
   */
  #tellStatus(status: MachineRecord['status'], reason: string | null): void {
    this.#note(this.#withoutVm(status, reason));
    this.#host.onMachineChange(this.report());
  }

  /** Returns the given status, or `failed` when a part of the machine's disk is missing. */
  #withoutVm(status: MachineRecord['status'], reason: string | null): Pick<MachineRecord, 'status' | 'reason'> {
    const damage = this.#disk.damage();
    return damage === undefined ? { status, reason } : { status: 'failed', reason: damage };
  }

  #save(changes: Partial<MachineRecord>, write = writeRecord): void {
    const record = { ...this.#record, ...changes };
    if (existsSync(this.#dir)) write(join(this.#dir, RECORD), record);
    this.#record = record;
  }

  /**
   * Flushes the record to disk while the machine starts, because the record must name the disk's layers even after a
   * power cut.
   */
  #beginSync(): void {
    this.#synced = syncPath(join(this.#dir, RECORD)).then(() => syncPath(this.#dir));
    this.#synced.catch(() => {});
  }

  #warn(err: unknown, message: string): void {
    this.#host.log.warn({ machine_id: this.id, err }, message);
  }

  /**
   * Changes the record like `#save`, but on a full disk it keeps the change in memory instead of failing. For changes
   * that must not fail.
   */
  #note(changes: Partial<MachineRecord>): void {
    try {
      this.#save(changes);
    } catch (err) {
      if (!(err instanceof ServiceError)) throw err;
      this.#record = { ...this.#record, ...changes };
      this.#host.log.warn({ machine_id: this.id, err }, 'the disk is full: a change is not recorded');
    }
  }

  #refuseStale(generation: number): void {
    if (generation >= this.#record.generation) return;
    throw new ServiceError('conflict', `generation ${generation} is behind ${this.#record.generation}`);
  }

  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => {});
    return result;
  }
}

/**
 * Returns the error for a machine that did not start. A full disk or a failing tool must not be reported as an internal
 * error.
 */
function startFailure(error: unknown): Error {
  if (isDiskFull(error)) return diskFull(error);
  if (!(error instanceof CommandError)) return error instanceof Error ? error : new Error(String(error));
  return new ServiceError('host_unavailable', `the host cannot start machines: ${error.message}`, {
    retryAfterSec: 30,
    cause: error,
  });
}
