// What a fake host has in memory in place of disks and virtual machines, and how it behaves for the test.
import { EventEmitter } from 'node:events';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type {
  EnsureMachine,
  HostEvent,
  HostFinding,
  HostInfo,
  HostSnapshot,
  HostVolume,
  JobReport,
  MachineReport,
  StartJob,
  StartPath,
} from '@sandbar/contract/host-api.ts';

/** `wanted` is the request that started the job. */
export type Job = { report: JobReport; stdout: Buffer; wanted: StartJob };
export type FakeMachine = {
  report: MachineReport;
  wanted: EnsureMachine;
  jobs: Map<string, Job>;
  /** The root volume that became the machine's disk, with its properties from before. */
  taken: HostVolume | undefined;
  /** The snapshots that the machine's disk was restored to, with the generation of each restore. */
  restores: { snapshotId: string; generation: number }[];
  /** The generation of the machine when it last booted. */
  bootGeneration: number;
  /** What its root disk contains; stays the same when the machine moves. */
  disk: string;
};

export class FakeState {
  readonly info: HostInfo;
  readonly machines = new Map<string, FakeMachine>();
  /** Disks that belong to no machine: data volumes and kept root disks. */
  readonly volumes = new Map<string, HostVolume>();
  /** What is in each volume, and the generation of this copy. A volume that moves keeps its content. */
  readonly contents = new Map<string, { content: string; generation: number }>();
  readonly snapshots = new Map<string, HostSnapshot>();
  /** What the host's own audit reports. */
  findings: HostFinding[] = [];
  /** How this host says that it started a machine; undefined: it says nothing, like an older agent. */
  startPath: StartPath | undefined;
  /** While true, no root disk and no machine of another host can be used here. */
  lacksImages = false;
  /** While true, it sends and takes in machines without their snapshots, like an older agent. */
  leavesSnapshots = false;
  /** While true, the fake host behaves like an older agent: it does not send the output of a job with its end. */
  keepsOutput = false;
  /** While true, no events are sent. */
  isMute = false;
  /** Volumes that cannot be attached to or detached from a running machine, until `heal`. */
  readonly stuck = new Set<string>();
  /**
   * The generation at which each machine was deleted. Like a real host, this host refuses a create that arrives after
   * the delete.
   */
  readonly destroyed = new Map<string, number>();
  /**
   * The latest deleted generation of each volume. Like a real host, this host refuses to create one of them again, and
   * to take in an earlier copy.
   */
  readonly removedVolumes = new Map<string, number>();
  /**
   * How many addresses were leased so far. The next lease continues from there, so that a freed address is leased again
   * as late as possible.
   */
  leases = 0;
  /** Whether the agent answers. */
  isListening = false;
  /** Emits the events of the host, and `close` when the agent stops. */
  readonly events = new EventEmitter().setMaxListeners(0);
  /** Emits the id of a job whose output or end has changed. */
  readonly jobChanges = new EventEmitter().setMaxListeners(0);

  constructor(info: HostInfo) {
    this.info = info;
  }

  emit(event: HostEvent): void {
    if (!this.isMute) this.events.emit('event', event);
  }
}

export const reportsOf = ({ machines }: FakeState): MachineReport[] =>
  [...machines.values()].map((machine) => machine.report);

export function machineOf({ machines }: FakeState, id: string): FakeMachine {
  const machine = machines.get(id);
  if (!machine) throw new ServiceError('not_found', 'The host does not know this machine.');
  return machine;
}
