// The machines of this host by id: finds them again at the start, makes and forgets them, and tells subscribers of
// every change.
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
  TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { readRecord } from '../storage/record-file.ts';
import { keepDiskWithoutRecord } from './keep-disk.ts';
import { Machine, type MachineHost } from './machine.ts';
import { originOf } from './origin.ts';
import { type MachineImage, type MachineRecord, RECORD } from './record.ts';

/** Generations of destroyed machines that are remembered, so that a late call cannot bring one back. */
const REMEMBERED_DESTROYED = 10_000;

export type RegistryHost = Omit<MachineHost, 'onMachineChange' | 'onJobEnd'>;

export class MachineRegistry {
  readonly events = new EventEmitter<{ event: [HostEvent] }>().setMaxListeners(0);
  readonly #host: MachineHost;
  readonly #findImage: (stack: string) => Promise<MachineImage>;
  readonly #machines = new Map<string, Machine>();
  readonly #creating = new Map<string, Promise<Machine>>();
  readonly #destroyed = new Map<string, number>();

  /** `findImage` rejects with `validation_error` for a stack that the host does not have. */
  constructor(host: RegistryHost, findImage: (stack: string) => Promise<MachineImage>) {
    this.#findImage = findImage;
    this.#host = {
      ...host,
      onMachineChange: (machine) => this.events.emit('event', { type: 'machine', machine }),
      onJobEnd: (job) => this.events.emit('event', { type: 'job', job }),
    };
  }

  /**
   * Finds the machines of earlier agents and takes their VMs up again: those of `found` whose run directory is a machine's.
   * Run once, before anything is asked.
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
          // Its record was never written, so it was never acknowledged.
          rmSync(join(machinesDir, id), { recursive: true, force: true });
        }
      } catch (err) {
        // A crash of the host can leave a record empty. The disk stays, for a later ensure or until a destroy.
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

  has(id: string): boolean {
    return this.#machines.has(id) || this.#creating.has(id);
  }

  /** Throws `not_found`. */
  get(id: string): Machine {
    const machine = this.#machines.get(id);
    if (!machine) throw new ServiceError('not_found', `this host has no machine ${id}`);
    return machine;
  }

  /** Makes the machine unless it is there, and brings it to what is wanted; see {@link Machine.ensure}. */
  async ensure(id: string, wanted: EnsureMachine): Promise<MachineReport> {
    if ((this.#destroyed.get(id) ?? 0) >= wanted.generation)
      throw new ServiceError('conflict', 'the machine was destroyed');
    const machine = this.#machines.get(id) ?? (await this.#create(id, wanted));
    return machine.ensure(wanted);
  }

  /**
   * Removes the machine, or all but its disk; one that is not there is removed already, and
   * `not_found` when its disk is to be kept. See {@link Machine.destroy}.
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
   * Takes a snapshot of a machine, unless it was taken already; see {@link Machine.takeSnapshot}. Throws `not_found` when
   * there is no such machine.
   */
  takeSnapshot(id: string, snapshotId: string, wanted: TakeSnapshot): Promise<HostSnapshot> {
    return this.get(id).takeSnapshot(snapshotId, wanted);
  }

  /** The agent ends: VMs stay, and the host's network only goes when no machine runs. */
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
    const machine = await Machine.create(id, this.#host, wanted, origin);
    this.#machines.set(id, machine);
    return machine;
  }

  /** What is left of a machine whose record cannot be read. */
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

/** The addresses of the machines whose VMs were found, by VM id: their rules have to stand from the first moment. */
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
