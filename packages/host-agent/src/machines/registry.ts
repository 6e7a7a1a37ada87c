// Holds all machines of this host. It loads them when the agent starts, creates and removes them, leases their
// addresses, and sends an event for every change.
import { EventEmitter } from 'node:events';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type {
  EnsureMachine,
  HostEvent,
  HostSnapshot,
  MachineReport,
  MachineSpec,
  TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import type { Vm } from '../hypervisor/driver.ts';
import type { AddressLeases } from '../network/address-leases.ts';
import { isMachineAddress } from '../network/addresses.ts';
import { readRecord } from '../storage/record-file.ts';
import { keepDiskWithoutRecord } from './keep-disk.ts';
import { Machine } from './machine.ts';
import type { MachineHost } from './machine-host.ts';
import { originOf } from './origin.ts';
import { type MachineImage, type MachineRecord, RECORD } from './record.ts';

/** How many destroyed machines are remembered, so that a request that arrives late cannot create one of them again. */
const REMEMBERED_DESTROYED = 10_000;

export type RegistryHost = Omit<MachineHost, 'onMachineEnd' | 'onJobEnd'> & { addresses: AddressLeases };

export class MachineRegistry {
  readonly events = new EventEmitter<{ event: [HostEvent] }>().setMaxListeners(0);
  readonly #host: MachineHost;
  readonly #addresses: AddressLeases;
  readonly #findImage: (stack: string) => Promise<MachineImage>;
  readonly #machines = new Map<string, Machine>();
  readonly #creating = new Map<string, Promise<Machine>>();
  readonly #arriving = new Set<string>();
  /** Addresses of machines that are being created and have no record yet, by machine id. */
  readonly #leases = new Map<string, string>();
  readonly #destroyed = new Map<string, number>();

  /** `findImage` must reject with `validation_error` for a stack that the host does not have. */
  constructor(host: RegistryHost, findImage: (stack: string) => Promise<MachineImage>) {
    this.#findImage = findImage;
    this.#addresses = host.addresses;
    this.#addresses.exclude(() => [...this.#addressesInRecords(), ...host.vms.heldAddresses()]);
    this.#host = {
      ...host,
      onMachineEnd: (machine) => this.events.emit('event', { type: 'machine', machine }),
      onJobEnd: (job) => this.events.emit('event', { type: 'job', job }),
    };
  }

  /**
   * Loads the machines that previous agents created. `found` holds the VMs that still run. The name of a VM's run
   * directory is the id of its machine. Call it once, before the first request.
   */
  async load(found: readonly Vm[]): Promise<void> {
    const { machinesDir, runMachinesDir, log } = this.#host;
    mkdirSync(machinesDir, { recursive: true, mode: 0o700 });
    mkdirSync(runMachinesDir, { recursive: true, mode: 0o700 });
    const vms = new Map(
      found.flatMap((vm) => (dirname(vm.runDir) === runMachinesDir ? [[basename(vm.runDir), vm]] : [])),
    );
    for (const id of readdirSync(machinesDir)) {
      try {
        const machine = await Machine.load(id, this.#host, vms.get(id));
        if (machine) {
          this.#machines.set(id, machine);
          vms.delete(id);
        } else {
          // The machine has no record, so no client was ever told that it exists.
          rmSync(join(machinesDir, id), { recursive: true, force: true });
        }
      } catch (err) {
        // A crash of the host can leave a record empty. Keep the disk: a later ensure uses it, and a destroy removes
        // it.
        log.error({ machine_id: id, err }, 'a machine could not be taken up');
      }
    }
    for (const [id, vm] of vms) {
      log.warn({ machine_id: id }, 'a VM without a readable record was ended');
      await this.#host.vms.discard(vm);
    }
    log.info({ machines: this.#machines.size, running: this.#runningCount() }, 'machines found');
  }

  reports(): MachineReport[] {
    return [...this.#machines.values()].map((machine) => machine.report());
  }

  /** Whether the machine is here, is being created, or is arriving from another host. */
  has(id: string): boolean {
    return this.#machines.has(id) || this.#creating.has(id) || this.#arriving.has(id);
  }

  /**
   * Notes that the files of a machine arrive, so that the audit does not take them for left ones. Call the returned
   * function at the end.
   */
  beginArrival(id: string): () => void {
    this.#arriving.add(id);
    return () => this.#arriving.delete(id);
  }

  /** Returns the machine. Throws `not_found`. */
  get(id: string): Machine {
    const machine = this.#machines.get(id);
    if (!machine) throw new ServiceError('not_found', `this host has no machine ${id}`);
    return machine;
  }

  /**
   * Creates the machine unless it exists, and brings it to the wanted state, see {@link Machine.ensure}. Also throws
   * `conflict` for an address that the machine cannot have, and `fleet_capacity` when the subnet has no free address,
   * or when the machine would have to start while the host's disk is nearly full. With `onlyIfRunning`, creates and
   * starts nothing, and throws `conflict` when the machine does not run.
   */
  async ensure(id: string, wanted: EnsureMachine, { onlyIfRunning = false } = {}): Promise<MachineReport> {
    this.refuseDestroyed(id, wanted.generation);
    const known = this.#machines.get(id);
    if (onlyIfRunning) {
      if (!known) throw new ServiceError('conflict', 'the machine does not run: its host does not have it');
      return known.ensure(wanted, { onlyIfRunning });
    }
    if (wanted.desired === 'running' && !known?.isRunning) this.#host.room.refuseWhenShort();
    if (known && wanted.desired === 'running') this.#refuseOtherAddress(known, wanted.spec.private_ip);
    const machine = known ?? (await this.#create(id, wanted));
    return machine.ensure(wanted);
  }

  /**
   * Removes the machine, see {@link Machine.destroy}. With `keepVolumeId`, its disk is kept as that volume. If there is
   * no such machine, it does nothing, or throws `not_found` when the disk should be kept.
   */
  async destroy(id: string, generation: number, keepVolumeId?: string): Promise<void> {
    this.#rememberDestroyed(id, generation);
    const machine = this.#machines.get(id) ?? (await this.#creating.get(id)?.catch(() => undefined));
    if (machine) await machine.destroy(generation, keepVolumeId);
    else await this.#removeFolder(id, keepVolumeId);
    this.#machines.delete(id);
    if (keepVolumeId !== undefined && !this.#host.volumes.has(keepVolumeId)) {
      throw new ServiceError('not_found', 'the machine has no disk that could be kept');
    }
  }

  /**
   * Takes in a stopped machine whose files have just arrived from another host. `write` writes its record, with the
   * address that it has on this host. Throws `conflict` when the machine is here already or this generation of it was
   * destroyed, and `fleet_capacity` when no address is free.
   */
  async takeIn(id: string, generation: number, write: (address: string) => void): Promise<MachineReport> {
    this.refuseDestroyed(id, generation);
    if (this.#machines.has(id) || this.#creating.has(id))
      throw new ServiceError('conflict', 'the machine is on this host already');
    const address = this.#addresses.choose();
    this.#leases.set(id, address);
    try {
      write(address);
      const machine = await Machine.load(id, this.#host, undefined);
      if (!machine) throw new Error(`the record of machine ${id} was not written`);
      this.#machines.set(id, machine);
      return machine.report();
    } finally {
      this.#leases.delete(id);
    }
  }

  /** Throws `conflict` when this generation of the machine was destroyed. */
  refuseDestroyed(id: string, generation: number): void {
    if ((this.#destroyed.get(id) ?? 0) >= generation) throw new ServiceError('conflict', 'the machine was destroyed');
  }

  /**
   * Takes a snapshot of a machine, see {@link Machine.takeSnapshot}. Does nothing when the snapshot exists already.
   * Throws `not_found` when there is no such machine, and `fleet_capacity` when the disk has no room for the machine's
   * memory.
   */
  takeSnapshot(id: string, snapshotId: string, wanted: TakeSnapshot): Promise<HostSnapshot> {
    const machine = this.get(id);
    this.#host.room.refuseWhenShort(wanted.memory ? machine.memoryMb * 2 ** 20 : 0);
    return machine.takeSnapshot(snapshotId, wanted);
  }

  /** Call it when the agent ends. VMs go on. The host's network is removed only when no machine runs. */
  async close(): Promise<void> {
    await Promise.all([...this.#machines.values()].map((machine) => machine.release()));
    if (this.#runningCount() === 0) await this.#host.vms.network.remove();
  }

  #create(id: string, wanted: EnsureMachine): Promise<Machine> {
    const creating = this.#creating.get(id) ?? this.#createNew(id, wanted).finally(() => this.#creating.delete(id));
    this.#creating.set(id, creating);
    return creating;
  }

  async #createNew(id: string, wanted: EnsureMachine): Promise<Machine> {
    const { spec } = wanted;
    const isFromImage = spec.snapshot_id === undefined && spec.root_volume_id === undefined;
    const image = isFromImage ? await this.#findImage(spec.stack) : undefined;
    const origin = () => (image ? { image, layers: [] } : originOf(this.#host, spec));
    const private_ip = this.#lease(id, spec);
    try {
      const isAddressOpen = spec.private_ip === undefined;
      const leased = { ...wanted, spec: { ...spec, private_ip }, isAddressOpen };
      const machine = await Machine.create(id, this.#host, leased, origin);
      this.#machines.set(id, machine);
      return machine;
    } finally {
      this.#leases.delete(id);
    }
  }

  /**
   * Leases an address for a new machine: the one that the control plane names, or a free one. It runs without an await,
   * so two parallel creates never get the same address. Throws `conflict` for a named address that the machine cannot
   * have, and `fleet_capacity` when no address is free.
   */
  #lease(id: string, spec: MachineSpec): string {
    const { subnet } = this.#addresses;
    const named = spec.private_ip;
    if (named !== undefined && this.#addressesInRecords().has(named)) throw addressConflict(named);
    if (named !== undefined && !isMachineAddress(subnet, named))
      throw new ServiceError('conflict', `${named} is not an address for machines in the host's subnet ${subnet}`);
    if (named !== undefined && !this.#addresses.takeBack(named)) throw addressConflict(named);
    const address = named ?? this.#addresses.choose();
    this.#leases.set(id, address);
    return address;
  }

  /** Returns the addresses of all machines: running, stopped and being created. */
  #addressesInRecords(): Set<string> {
    return new Set([...this.#leases.values(), ...[...this.#machines.values()].map((machine) => machine.privateIp)]);
  }

  /**
   * Throws `conflict` when the control plane names another address than the machine has, because a machine never
   * changes its address.
   */
  #refuseOtherAddress(machine: Machine, named: string | undefined): void {
    if (named === undefined || named === machine.privateIp) return;
    if (this.#addressesInRecords().has(named)) throw addressConflict(named);
    throw new ServiceError('conflict', `the machine has the address ${machine.privateIp} on its host, not ${named}`);
  }

  /**
   * Removes the folder of a machine whose record cannot be read, and keeps its disk as a volume if `keepVolumeId` is
   * given.
   */
  async #removeFolder(id: string, keepVolumeId: string | undefined): Promise<void> {
    const dir = join(this.#host.machinesDir, id);
    if (keepVolumeId !== undefined) await keepDiskWithoutRecord(this.#host.volumes, keepVolumeId, { id, dir });
    await rm(dir, { recursive: true, force: true });
  }

  #rememberDestroyed(id: string, generation: number): void {
    this.#destroyed.set(id, Math.max(generation, this.#destroyed.get(id) ?? 0));
    if (this.#destroyed.size > REMEMBERED_DESTROYED) {
      for (const oldest of this.#destroyed.keys()) {
        this.#destroyed.delete(oldest);
        break;
      }
    }
  }

  #runningCount(): number {
    return [...this.#machines.values()].filter((machine) => machine.isRunning).length;
  }
}

/**
 * Returns the error for an address that is taken. It does not name the other machine, which may belong to another
 * account.
 */
function addressConflict(address: string): ServiceError {
  return new ServiceError('conflict', `another machine of the host has the address ${address}`);
}

/**
 * Returns the addresses of the machines whose VMs still run, by VM id. The network needs them when it starts, to write
 * the firewall rules of these VMs.
 */
export function assignedAddresses(machinesDir: string, found: readonly Vm[]): Map<string, string> {
  return new Map(
    found.flatMap((vm) => {
      const address = readAddress(join(machinesDir, basename(vm.runDir)));
      return address === undefined ? [] : [[vm.vmId, address] as const];
    }),
  );
}

function readAddress(dir: string): string | undefined {
  try {
    return readRecord<MachineRecord>(join(dir, RECORD))?.spec.private_ip;
  } catch {
    return undefined;
  }
}
