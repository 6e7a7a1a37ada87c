// What every machine gets from its host: the parts that all machines of the host share.
import type { EnsureMachine, JobReport, MachineReport } from '@sandbar/contract/host-api.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import type { KeptLimits } from '../jobs/kept-output.ts';
import type { AgentMetrics } from '../metrics/metrics.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import type { LayerStore } from '../storage/layers.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { VmHost } from '../vms/vm-host.ts';
import type { BootLog } from './boot.ts';
import type { LeasedSpec } from './record.ts';
import type { Starter } from './starter.ts';

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
  keptOutput: KeptLimits;
  room: DiskRoom;
  metrics: AgentMetrics;
  tracing: Tracing;
  log: BootLog & { info(details: object, message: string): void; error(details: object, message: string): void };
  /** Called when the machine no longer needs some layers of its disk, which may be unused now. */
  onLayersLeft(): void;
  /** Called when a machine has stopped or failed. */
  onMachineEnd(report: MachineReport): void;
  onJobEnd(report: JobReport): void;
};

/** The request for a new machine, its address, and whether it may take the address and names of a clone instead. */
export type NewMachine = EnsureMachine & { spec: LeasedSpec; isAddressOpen: boolean };
