// The calls that the host agent makes to the guest agent inside a machine. The guest is not trusted: the host limits
// the size of its answers, checks their shape, and never identifies a machine by what its guest says.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { JobStatus } from '@sandbar/contract/exec-states.ts';
import type { StartJob } from '@sandbar/contract/host-api.ts';
import type { GuestStream } from './guest-stream.ts';

/**
 * What distinguishes one machine from all others. The guest applies and confirms its identity before any program of the
 * user runs.
 */
export type GuestIdentity = {
  machineId: string;
  /** The UUID whose digits are in /etc/machine-id. Left out: the machine's id. */
  systemId?: string;
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
   * True when the machine was resumed from a memory snapshot. Its processes were held (frozen) for the snapshot and
   * must stay held until the identity is applied. If they already run again, the guest refuses with `conflict` and
   * applies nothing.
   */
  wasHeld?: boolean;
};

/** The part of an identity that a clone gets while it waits in the pool: all but the machine's id. */
export type GuestLease = Required<Omit<GuestIdentity, 'machineId' | 'diskBytes' | 'wasHeld'>>;

/** What a machine that claims the lease of a clone adds to it. */
export type GuestClaim = Pick<GuestIdentity, 'machineId' | 'diskBytes'>;

/** A job as the host sends it to the guest, without the generation, which only the host checks. */
export type JobSpec = Omit<StartJob, 'generation'>;

/**
 * A job as the guest reports it. The byte counts cover only output that the guest kept, up to the limit of each stream.
 */
export type GuestJob = {
  id: string;
  status: Exclude<JobStatus, 'lost'>;
  exitCode: number | null;
  signal: string | null;
  /** Accepted bytes of standard input; null for a job without `stdin_open`, and from an older guest agent. */
  stdinBytes: number | null;
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

/**
 * The program that a warm-up runs as a job: the guest agent's own program, which is not on the disk, or the disk's
 * /bin/sh.
 */
export type WarmUpProgram = 'agent' | 'shell';

/** A data volume whose disk is plugged into the VM, and where the guest mounts it. */
export type VolumeMount = {
  volumeId: string;
  /** The SCSI id of the disk, 0 to 7. */
  slot: number;
  /** Absolute path of the mount point. The guest creates the folder if it does not exist. */
  path: string;
};

/**
 * Where a machine's guest agent is found: a Unix socket of the machine's QEMU, and the token for it (64 hex digits).
 */
export type GuestAddress = { dir: string; name: string; token: string };

/** Opens sessions with guest agents. */
export interface GuestConnector {
  /**
   * Opens a session, which ends an earlier session with the same machine. Tries again as long as nobody listens on the
   * socket. Rejects when `signal` aborts, when `isGone` returns true, or when the session cannot be opened for another
   * reason.
   */
  connect(address: GuestAddress, signal: AbortSignal, isGone: () => boolean): Promise<Guest>;
}

/** A session with the guest agent of one machine. */
export interface Guest {
  /** Resolves when the session has ended, for any reason. */
  readonly closed: Promise<void>;
  /**
   * Resolves when the guest has not mounted its root disk yet, because it waits for its identity. Throws `conflict`
   * when it has. Older guest agents mount the disk while they boot.
   */
  checkBare(): Promise<void>;
  /**
   * Warms the guest up: runs the identity step and a job, and undoes both. After that an emulating
   * QEMU has translated the code of both, so the first real identity step and job are fast. Rejects with `conflict`
   * after {@link setIdentity}.
   */
  warmUp(program: WarmUpProgram): Promise<void>;
  /** The part of {@link warmUp} that runs a job. */
  warmUpJob(program: WarmUpProgram): Promise<void>;
  /**
   * Gives a guest without an identity new randomness, the time, and these names and network settings. Returns whether
   * the lease can be claimed; an older guest agent takes the network settings only. An identity with the same settings
   * is then applied faster. May be repeated with other settings. Rejects with `conflict` when the guest has an identity, or
   * has not mounted its disk.
   */
  lease(lease: GuestLease): Promise<boolean>;
  /**
   * Makes the last lease the guest's identity and sets the clock. Resolves when both are done. May be repeated. Rejects
   * with `conflict` when the guest has another identity, or when a warm-up has undone the lease.
   */
  claim(claim: GuestClaim): Promise<void>;
  /**
   * Gives the guest its identity; resolves when all of it is applied. A guest restored from a memory snapshot still has
   * the state of the machine that was saved. So its network connections end, its jobs are forgotten although their
   * processes continue, and its volumes are detached.
   */
  setIdentity(identity: GuestIdentity): Promise<void>;
  /**
   * Starts the job, unless it was started already, and follows its output from byte 0. Resolves when the command runs.
   * Throws a `ServiceError` when the guest refuses, and nothing runs then: `validation_error` for an unknown user or a
   * missing working directory, `host_unavailable` when the machine lacks resources, such as memory. After any other
   * error the job may or may not run.
   */
  startJob(jobId: string, spec: JobSpec, outputLimitBytes: number): Promise<AsyncIterable<JobFrame>>;
  /** Follows a job's output from the given offsets. Throws `not_found` when the guest does not know the job. */
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
   * Writes dirty pages, unmounts, and removes the disk from the guest's kernel, so that it can be unplugged. Does
   * nothing for a volume that is not mounted. For a busy volume it throws `conflict`, which names the processes, and
   * changes nothing.
   */
  unmountVolume(volumeId: string): Promise<void>;
  /**
   * Writes dirty pages, then freezes the root file system until {@link thaw}. After `timeoutMs` the guest thaws the
   * file system by itself, even if the session ended before the guest answered. Throws `conflict` when the file system
   * is frozen already.
   */
  freeze(timeoutMs: number): Promise<void>;
  /**
   * Throws `conflict` when the guest has already thawed by itself. A snapshot taken during the freeze may then be
   * inconsistent.
   */
  thaw(): Promise<void>;
  /**
   * Stops all processes except the guest agent until {@link releaseProcesses}, or for at most `timeoutMs` of the
   * guest's clock. A memory snapshot is taken meanwhile, so in a machine restored from it the processes are still
   * stopped. There they continue only when {@link setIdentity} is done, so no two machines generate the same random
   * numbers. Throws `conflict` when the processes are stopped already.
   */
  holdProcesses(timeoutMs: number): Promise<void>;
  /** Throws `conflict` when the processes already run again, because the time limit has passed. */
  releaseProcesses(): Promise<void>;
  powerOff(): Promise<void>;
  /**
   * Makes the guest call `name` with `params` and returns its answer; both are JSON text. The guest may be hostile:
   * check the answer's shape. Throws the guest's `ServiceError`; `not_found` also from an older guest agent without
   * this call. After any other error the guest may or may not have done it.
   */
  call(name: string, params: string, timeoutMs: number): Promise<string>;
  /** Opens the two-way stream `name`. Resolves when the guest has accepted it. Throws like {@link call}. */
  openStream(name: string, params: string): Promise<GuestStream>;
  close(): void;
}
