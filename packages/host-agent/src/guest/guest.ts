// What the host agent asks of the guest agent inside a machine. The guest is not trusted: sizes of its answers are bounded,
// shapes are checked, and no answer changes which machine the host takes it for.
import type { JobStatus, OutputStream } from '@sandbar/contract/exec.ts';
import type { StartJob } from '@sandbar/contract/host-api.ts';

/** What distinguishes one machine from all others. The guest applies and acknowledges it before any program of the user runs. */
export type GuestIdentity = {
  machineId: string;
  hostname: string;
  /** IPv4 address with prefix length, such as 10.1.2.3/16. */
  address: string;
  gateway: string;
  nameServers: readonly string[];
  mac: string;
  /** Bytes. */
  mtu: number;
  /** The size of a root disk that was just made larger. The guest waits until its kernel sees that size. */
  diskBytes?: number;
  /**
   * True when the machine was resumed from a memory snapshot. Its processes were held (frozen) for the snapshot and must
   * stay held until the identity is applied. If they already run again, the guest refuses with `conflict` and applies
   * nothing.
   */
  wasHeld?: boolean;
};

/** A job as the guest is asked to run it. The generation is checked by the host. */
export type JobSpec = Omit<StartJob, 'generation'>;

/** A job as the guest reports it. The byte counts are of the output that was kept, up to the limit of each stream. */
export type GuestJob = {
  id: string;
  status: Exclude<JobStatus, 'lost'>;
  exitCode: number | null;
  signal: string | null;
  stdoutBytes: number;
  stderrBytes: number;
  truncated: boolean;
};

/**
 * One item of a job's stream: output bytes with their absolute offset, or the end of the job, which is the last item.
 */
export type JobFrame =
  | { type: 'output'; stream: OutputStream; offset: number; bytes: Buffer }
  | { type: 'end'; job: GuestJob };

export type StreamOffsets = Record<OutputStream, number>;

/** What the job of a warm-up runs: the guest agent's own program, which is not on the disk, or the disk's /bin/sh. */
export type WarmUpProgram = 'agent' | 'shell';

/** A data volume whose disk is plugged into the VM, and where the guest mounts it. */
export type VolumeMount = {
  volumeId: string;
  /** The SCSI id of the disk, 0 to 7. */
  slot: number;
  /** Absolute path of the mount point. The guest creates the folder if it does not exist. */
  path: string;
};

/** Where a machine's guest agent is found: a Unix socket of the machine's QEMU, and the token for it (64 hex digits). */
export type GuestAddress = { dir: string; name: string; token: string };

/** Opens sessions with guest agents. */
export interface GuestConnector {
  /**
   * Opens a session, which ends the machine's earlier one. As long as nobody listens on the socket, it tries again,
   * until `signal` aborts or `isGone` returns true. Rejects then, and when the guest does not echo the token.
   */
  connect(address: GuestAddress, signal: AbortSignal, isGone: () => boolean): Promise<Guest>;
}

/** A session with the guest agent of one machine. */
export interface Guest {
  /** Resolves when the session has ended, for any reason. */
  readonly closed: Promise<void>;
  /**
   * Warms the guest up: it goes once through the identity step and a job, and leaves no trace. Under emulation the code of
   * both is then translated, so the first real ones are fast. Rejects with `conflict` after {@link setIdentity}.
   */
  warmUp(program: WarmUpProgram): Promise<void>;
  /**
   * Gives the guest its identity; resolves when all of it is applied. A guest from a memory snapshot was another machine
   * before: its connections end, its jobs are forgotten while their processes live on, and its volumes are detached.
   */
  setIdentity(identity: GuestIdentity): Promise<void>;
  /**
   * Starts a job, or finds it started, and follows its output from byte 0. Resolves when the command runs.
   * Throws a `ServiceError` when the guest refuses, and nothing runs then: `validation_error` for an unknown user or a
   * missing working directory, `host_unavailable` when the machine lacks the means, such as memory. After any other error
   * the job may or may not run.
   */
  startJob(jobId: string, spec: JobSpec, outputLimitBytes: number): Promise<AsyncIterable<JobFrame>>;
  /** Follows a job from the given offsets; `not_found` when the guest does not know it. */
  followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>>;
  /** Tells the guest that the host has stored the output below these offsets, so that the guest can free it. */
  acknowledgeOutput(jobId: string, offsets: StreamOffsets): Promise<void>;
  cancelJob(jobId: string): Promise<void>;
  listJobs(): Promise<GuestJob[]>;
  forgetJob(jobId: string): Promise<void>;
  /**
   * Waits up to 10 s for the disk and mounts its ext4 file system. May be repeated. If one mount point is inside
   * another, mount the outer one first. Throws a `ServiceError` when the guest refuses, and then nothing is mounted:
   * `conflict` when the owner of the machine has to fix something, which the detail names (the volume is mounted
   * elsewhere, the path is a file, there is another mount at or below it, the file system is damaged);
   * `host_unavailable` when the disk does not appear or cannot be read.
   */
  mountVolume(mount: VolumeMount): Promise<void>;
  /**
   * Writes dirty pages, unmounts, and removes the disk from the guest's kernel, so that it can be unplugged. Does nothing for
   * a volume that is not mounted. For a busy volume it throws `conflict`, which names the processes, and changes nothing.
   */
  unmountVolume(volumeId: string): Promise<void>;
  /**
   * Writes dirty pages, then freezes the root file system until {@link thaw}. After `timeoutMs` the guest thaws by itself, also
   * when the session broke before the answer. `conflict` when it is frozen already.
   */
  freeze(timeoutMs: number): Promise<void>;
  /** Throws `conflict` when the time of the freeze had run out: a snapshot that was taken meanwhile may not be consistent. */
  thaw(): Promise<void>;
  /**
   * Stops all processes but the agent until {@link releaseProcesses}, or for `timeoutMs` of the guest's clock at most. For a
   * memory snapshot: in a machine that is made from it the processes are still stopped, and go on after {@link setIdentity}
   * is done, so no two machines draw the same random numbers. `conflict` when they are stopped already.
   */
  holdProcesses(timeoutMs: number): Promise<void>;
  /** Throws `conflict` when the processes ran again already. */
  releaseProcesses(): Promise<void>;
  powerOff(): Promise<void>;
  close(): void;
}
