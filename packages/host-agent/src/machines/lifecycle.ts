// Starts and ends the VM of one machine, and keeps the machine's status up to date. All its functions run in the
// machine's queue, one after the other.
//
//              start                  identity acknowledged
//   stopped ───────────▶ starting ───────────────────▶ running
//      ▲  ▲                 │ cannot boot                │  │
//      │  └─────────────────┘                            │  │ its VM dies
//      └──────── stop, or the guest powers off ──────────┘  ▼
//                                                         failed
//   When the guest reboots, the machine goes through `starting` again. A machine can be destroyed in every state.
import { rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineReport, StartPath } from '@sandbar/contract/host-api.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm, VmExit } from '../hypervisor/driver.ts';
import type { CloneLease } from '../network/address-leases.ts';
import { CommandError } from '../run-command.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { guestNetwork } from '../vms/guest-network.ts';
import { type StartedMachine, throwIfDestroyed } from './boot.ts';
import type { MachineDisk } from './machine-disk.ts';
import type { MachineHost } from './machine-host.ts';
import type { MachineJobs } from './machine-jobs.ts';
import type { MachineVm } from './machine-vm.ts';
import type { MachineVolumes } from './machine-volumes.ts';
import { type HostMachineStatus, type MachineRecord, statusWithoutVm } from './record.ts';
import type { RecordBook } from './record-book.ts';

/** The file with the console output of a VM that died. It is kept so that a person can find the cause. */
const LAST_CONSOLE = 'last-console.log';

/** The objects that own the other parts of the machine. */
export type MachineParts = {
  book: RecordBook;
  vm: MachineVm;
  disk: MachineDisk;
  volumes: MachineVolumes;
  jobs: MachineJobs;
};

export type LifecycleOptions = MachineParts & {
  machineId: string;
  host: MachineHost;
  /** Runs work in the machine's queue. */
  enqueue: (work: () => Promise<void>) => Promise<void>;
};

export class Lifecycle {
  readonly #options: LifecycleOptions;
  readonly #dir: string;
  readonly #runDir: string;
  /** Aborted by every destroy, so that a boot that is under way stops. */
  readonly #destroying = new AbortController();
  /** Aborted by a destroy that keeps no data, so that it does not wait for the guest to write its files. */
  readonly #discarding = new AbortController();

  constructor(options: LifecycleOptions) {
    const { machineId, host } = options;
    this.#options = options;
    this.#dir = join(host.machinesDir, machineId);
    this.#runDir = join(host.runMachinesDir, machineId);
  }

  report(): MachineReport {
    const { machineId, host, book } = this.#options;
    const { generation, status, reason, spec } = book.record;
    const { isolation } = host.vms.hypervisor;
    const { private_ip } = spec;
    const output_revision = this.#options.jobs.outputRevision;
    return { machine_id: machineId, generation, status, reason, isolation, private_ip, output_revision };
  }

  /**
   * Starts the machine, and returns how it was started. Returns undefined, and does nothing, if it has a VM. Throws
   * `conflict` if the machine was destroyed, `fleet_capacity` on a full disk, `host_unavailable` when the machine cannot
   * start, and the errors of {@link MachineVolumes.plugAll}.
   */
  async start(): Promise<StartPath | undefined> {
    const { book, vm: held, disk, volumes } = this.#options;
    if (held.current) return undefined;
    throwIfDestroyed(this.#destroying.signal);
    let path: StartPath;
    try {
      disk.prepareStart();
      book.save({ status: 'starting', reason: null });
      const { vm, lease, hasNames, ...started } = await this.#boot();
      path = started.path;
      try {
        await volumes.plugAll(vm, held.findGuest, this.#destroying.signal);
        await book.synced;
        const running = {
          status: 'running',
          reason: null,
          hasDisk: true,
          resumes: null,
          isAddressOpen: false,
        } as const;
        book.save({ ...running, ...leasedOf(book.record, lease, hasNames), bootGeneration: book.record.generation });
      } finally {
        lease?.release();
      }
    } catch (error) {
      const failure = startFailure(error);
      await this.tearDown();
      this.tellStatus('stopped', failure.message);
      throw failure;
    }
    return path;
  }

  async stop(): Promise<void> {
    await this.powerOff();
    await this.tearDown();
    this.tellStatus('stopped', null);
  }

  /** Asks the guest to write its files and power off, 10 s at most. Does nothing without a VM. */
  powerOff(): Promise<void> {
    return this.#options.vm.powerOff(this.#discarding.signal);
  }

  /** Ends the VM, its sessions and its jobs, and removes its run directory. The disk stays. */
  async tearDown(): Promise<void> {
    const { host, vm: held, disk, volumes, jobs } = this.#options;
    const vm = held.letGo();
    disk.forgetCopy();
    if (vm) {
      await host.vms.discard(vm);
      volumes.letGo();
    }
    await jobs.loseAll();
    await rm(this.#runDir, { recursive: true, force: true });
    disk.settle();
  }

  /** Stops a boot that is under way, because a destroy waits for it in the queue. Call it outside the queue. */
  interruptStart(): void {
    this.#destroying.abort();
  }

  /** Also stops waiting for the guest. Call it outside the queue, when a destroy keeps neither disk nor volume data. */
  interruptGuest(): void {
    this.#discarding.abort();
    // Otherwise the destroy would wait for a guest that does not answer.
    this.#options.vm.closeSession();
  }

  /** Continues with a machine of an earlier agent, whose VM may still run. */
  async takeUp(vm: Vm | undefined): Promise<void> {
    const { host, book, vm: held, disk, volumes } = this.#options;
    if (vm && book.record.status === 'running') {
      await disk.takeUp(vm);
      await volumes.takeUp(vm);
      this.#hold(vm);
      held.letGuestGoOn();
      return;
    }
    // The previous agent died while it started this VM. The guest may lack its identity, so end the VM.
    held.holdSilently(vm);
    const found = statusWithoutVm(book.record, host.bootId);
    await this.tearDown();
    book.note({ ...disk.statusWithoutVm(found), bootId: host.bootId });
  }

  /**
   * Sets and reports the status of a machine without a VM. If the disk is full and the status cannot be recorded, the
   * next agent determines it again.
   */
  tellStatus(status: HostMachineStatus, reason: string | null): void {
    const { book, disk } = this.#options;
    book.note(disk.statusWithoutVm({ status, reason }));
    this.#options.host.onMachineEnd(this.report());
  }

  async #boot(): Promise<StartedMachine & { path: StartPath }> {
    const { host, machineId, book, disk } = this.#options;
    const { spec, image, resumes, isAddressOpen, systemId } = book.record;
    const { network } = host.vms;
    const started = await host.starter.start({
      spec,
      image,
      resumes,
      layerPaths: disk.layerPaths,
      diskPath: disk.path,
      runDir: this.#runDir,
      identity: {
        machineId,
        ...(systemId === null ? {} : { systemId }),
        hostname: spec.hostname,
        ...guestNetwork(network, spec.private_ip),
      },
      isAddressOpen,
      abort: this.#destroying.signal,
    });
    this.#hold(started.vm, started.guest);
    return started;
  }

  #hold(vm: Vm, guest?: Guest): void {
    const { machineId, host, vm: held, disk, jobs, enqueue } = this.#options;
    held.hold(vm, (session) => jobs.resume(session), guest);
    vm.exited
      .then((exit) => enqueue(() => this.#vmEnded(vm, exit)))
      .catch((err) => host.log.error({ machine_id: machineId, err }, 'the end of a VM was not dealt with'));
    disk.beginUse(vm);
  }

  /** Handles a VM that ended although the host did not end it. */
  async #vmEnded(vm: Vm, exit: VmExit): Promise<void> {
    const { host, machineId, vm: held } = this.#options;
    if (held.current !== vm) return;
    host.log.info({ machine_id: machineId, cause: exit.cause, reason: exit.reason }, 'a machine ended by itself');
    await this.#keepConsole(vm);
    await this.tearDown();
    if (exit.cause === 'rebooted') {
      await this.start().catch((error) =>
        this.tellStatus('failed', `it did not come back from a reboot: ${error.message}`),
      );
      return;
    }
    this.tellStatus(exit.cause === 'powered-off' ? 'stopped' : 'failed', exit.reason);
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
      const { host, machineId } = this.#options;
      host.log.warn({ machine_id: machineId, err }, 'the last console was not kept');
    }
  }
}

/** Returns the machine's address, hostname and system id, with those that it has from its lease. */
function leasedOf({ spec, systemId }: MachineRecord, lease: CloneLease | undefined, hasNames = false) {
  if (!lease) return { spec, systemId };
  const leased = { ...spec, private_ip: lease.address };
  return hasNames
    ? { spec: { ...leased, hostname: lease.hostname }, systemId: lease.systemId }
    : { spec: leased, systemId };
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
