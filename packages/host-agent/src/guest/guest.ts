// What the agent asks of the program inside a machine. Everything that comes back is from a stranger: sizes are
// bounded, shapes are checked, and nothing it says changes which machine it is taken for.
import type { JobStatus, OutputStream } from '@sandbar/contract/exec.ts';
import type { StartJob } from '@sandbar/contract/host-api.ts';

/** What makes a machine itself; applied and acknowledged before anything of the user's runs. */
export type GuestIdentity = {
  machineId: string;
  hostname: string;
  /** CIDR, such as 10.1.2.3/16. */
  address: string;
  gateway: string;
  nameServers: readonly string[];
  mac: string;
  /** Bytes. */
  mtu: number;
  /** Of a root disk that was just made larger: the guest waits until it sees that. */
  diskBytes?: number;
  /**
   * The machine goes on from a snapshot of memory, for which its processes were held: refused with `conflict`, and nothing is
   * applied, when they went on already.
   */
  wasHeld?: boolean;
};

/** What a guest is asked to run. */
export type JobSpec = Omit<StartJob, 'generation'>;

/** A job as the guest tells it; bytes are those kept, below the limit of each stream. */
export type GuestJob = {
  id: string;
  status: Exclude<JobStatus, 'lost'>;
  exitCode: number | null;
  signal: string | null;
  stdoutBytes: number;
  stderrBytes: number;
  truncated: boolean;
};

/** One piece of a job's stream: bytes with their absolute offset, or the end, which comes last. */
export type JobFrame =
  | { type: 'output'; stream: OutputStream; offset: number; bytes: Buffer }
  | { type: 'end'; job: GuestJob };

export type StreamOffsets = Record<OutputStream, number>;

/** A data volume that was plugged in, and where the guest mounts it. */
export type VolumeMount = {
  volumeId: string;
  /** Its SCSI id, 0 to 7. */
  slot: number;
  /** Absolute; made when it is not there. */
  path: string;
};

/** A session with the guest agent of one machine. */
export interface Guest {
  /** Resolves when the session is over, for whatever reason. */
  readonly closed: Promise<void>;
  /**
   * Goes once through the identity step and a job, so that the code of both is translated when it matters, and leaves no
   * trace in the guest. Only for a machine without identity: rejects with `conflict` after {@link setIdentity}.
   */
  rehearse(): Promise<void>;
  /**
   * Makes the machine itself; resolves when it is. One that was another machine before (it came from a memory snapshot)
   * lets that go: its connections end, its jobs are forgotten while their processes live on, its volumes are gone.
   */
  setIdentity(identity: GuestIdentity): Promise<void>;
  /**
   * Starts a job, or finds it started, and follows its output from byte 0. Resolves when the command runs.
   * Throws a `ServiceError` when the guest refuses, and nothing runs then: `validation_error` for an unknown user or a
   * missing working directory, `host_unavailable` when the machine lacks the means. Any other error proves nothing.
   */
  startJob(jobId: string, spec: JobSpec, outputLimitBytes: number): Promise<AsyncIterable<JobFrame>>;
  /** Follows a job from the given offsets; `not_found` when the guest does not know it. */
  followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>>;
  /** Output below these offsets is safe on the host and may be freed in the guest. */
  acknowledgeOutput(jobId: string, offsets: StreamOffsets): Promise<void>;
  cancelJob(jobId: string): Promise<void>;
  listJobs(): Promise<GuestJob[]>;
  forgetJob(jobId: string): Promise<void>;
  /**
   * Waits up to 10 s for the disk, and mounts the ext4 file system on it. May be repeated. Volumes inside each other are
   * mounted outer first. Nothing is mounted when it throws a `ServiceError`: `conflict` when its owner has to mend something,
   * which the detail names (the volume is mounted elsewhere, the path is a file, or has another mount on it or below, the file
   * system is damaged); `host_unavailable` when the disk does not show up or cannot be read.
   */
  mountVolume(mount: VolumeMount): Promise<void>;
  /**
   * Writes what is dirty, unmounts, and takes the disk out of the guest's kernel; then it may be unplugged. A volume that is
   * not mounted is left alone. `conflict` names what holds a busy one, and nothing has changed then.
   */
  unmountVolume(volumeId: string): Promise<void>;
  /**
   * Writes what is dirty, then stops all writing to the root file system until {@link thaw}, or for `timeoutMs` at most: the guest
   * thaws by itself. `conflict` when it is frozen already. A session that breaks before the answer leaves it to the time limit.
   */
  freeze(timeoutMs: number): Promise<void>;
  /** `conflict` when it was not frozen any more: the time ran out, and what was taken meanwhile may not be consistent. */
  thaw(): Promise<void>;
  /**
   * Stops all processes but the agent until {@link releaseProcesses}, or for `timeoutMs` of the guest's own time at most. For a
   * snapshot of memory: in a machine made of it they are still held, and go on when {@link setIdentity} has made it itself,
   * so that no two machines go on from the same random numbers. `conflict` when they are held already.
   */
  holdProcesses(timeoutMs: number): Promise<void>;
  /** `conflict` when they were not held any more. */
  releaseProcesses(): Promise<void>;
  powerOff(): Promise<void>;
  close(): void;
}
