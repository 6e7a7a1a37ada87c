// The client of the host API of one agent. Every host call is safe to repeat, so the transport sends a
// request a second time if its connection broke. If the repetition fails too, or the answer is not JSON, the call
// throws `host_unavailable`. If the host refuses, the call throws the ServiceError that the host named.
import type { Duplex, Readable } from 'node:stream';
import { isErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { type AgentCertificate, type AgentCertificateRequest, CERTIFICATE_PATHS } from '@sandbar/contract/fleet.ts';
import { GUEST_CALLS, type GuestCallName, type GuestStreamName } from '@sandbar/contract/guest-calls.ts';
import {
  type EnsureMachine,
  HOST_PATHS,
  type HostAudit,
  type HostAuditFix,
  type HostEvent,
  type HostInfo,
  type HostKeptOutput,
  type HostSnapshot,
  type HostVolume,
  type JobAnswer,
  type JobReport,
  type MachineReport,
  OUTPUT_HEADERS,
  type StartJob,
  type TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import {
  type AssembleBlob,
  BLOB_PATHS,
  type BlobProgress,
  type CopyProgress,
  type DownloadPart,
  type HostCopyList,
  type ImageContent,
  type SnapshotContent,
  type StoredPart,
  type UploadPart,
} from '@sandbar/contract/host-blobs.ts';
import { NO_TRACING, type Tracing } from '@sandbar/tracing/tracing.ts';
import type { HostCopy } from '../db/tables.ts';
import { type HostStream, StreamTransport } from './guest-stream.ts';
import { openPortSocket } from './port-socket.ts';
import { toPortConnection } from './port-stream.ts';
import type { HostTarget } from './target.ts';
import { type Answer, type Call, createTransport, readBytes, wasNeverSent } from './transport.ts';

export type OutputPage = { bytes: Buffer; nextOffset: number; totalBytes: number; eof: boolean };
/** `waitMs`: how long a start waits for the end of its job, in milliseconds. `outputLimit`: see `HostClient.getJob`. */
export type EndQuestion = { waitMs: number; outputLimit: number };
export type OutputQuery = { stream: OutputStream; offset: number; limit: number; waitMs: number };

/** What one host sends to another one. */
export type CopySubject = Pick<HostCopy, 'kind' | 'id'>;
/** `snapshot_ids`: the snapshots of a machine that are there now. Absent in answers of older agents. */
export type ReceivedCopy = { private_ip?: string | null; snapshot_ids?: readonly string[] };

/** The calls to a host. Tests replace this client by a fake. All methods throw `ServiceError`. */
export type HostClient = {
  info(): Promise<HostInfo>;
  listMachines(): Promise<MachineReport[]>;
  /** Returns undefined if the host does not know the machine. */
  getMachine(machineId: string): Promise<MachineReport | undefined>;
  /**
   * Brings a machine to the wanted state. With `onlyIfRunning`, throws `conflict` and starts nothing if the machine does
   * not run. An agent of an earlier version does not know this condition and starts the machine.
   */
  ensureMachine(
    machineId: string,
    wanted: EnsureMachine,
    timeoutMs: number,
    options?: { onlyIfRunning: boolean },
  ): Promise<MachineReport>;
  /**
   * Deletes a machine. Succeeds if the machine does not exist. With `keepVolumeId` the machine's root disk becomes the
   * volume with that id; if there is no root disk, throws `not_found`.
   */
  deleteMachine(machineId: string, generation: number, keepVolumeId?: string): Promise<void>;
  /**
   * Deletes a machine of this generation or an older one, with the snapshots of it that are on the host. Succeeds if there
   * is nothing to delete. Throws `conflict` when a newer generation is there.
   */
  deleteMachineCopy(machineId: string, generation: number): Promise<void>;
  /** Lists the volumes whose disks exist. */
  listVolumes(): Promise<HostVolume[]>;
  /** Creates an empty data volume of `sizeGb` GiB. Does nothing if the volume exists. */
  ensureVolume(volumeId: string, sizeGb: number): Promise<HostVolume>;
  /**
   * Deletes a volume; with `generation`, only a copy of that generation or an older one. Succeeds also when there is
   * nothing to delete. Ends what is being sent and received of it.
   */
  deleteVolume(volumeId: string, generation?: number): Promise<void>;
  /**
   * Returns the bytes of a volume or a stopped machine, for another host. The bytes end with a checksum that the other
   * host checks. When `signal` is aborted, they break off.
   */
  sendCopy(of: CopySubject, signal: AbortSignal): Promise<Readable>;
  /**
   * Gives a host the bytes that another host has sent. Does nothing when it has this generation already. Also throws
   * `conflict` when the copy cannot be used there, and `fleet_capacity` on a full disk. `content` is destroyed at the
   * end. Returns the address that a machine has on its new host.
   */
  receiveCopy(of: CopySubject, generation: number, content: Readable, signal: AbortSignal): Promise<ReceivedCopy>;
  /** Lists the snapshots whose files are complete. */
  listSnapshots(): Promise<HostSnapshot[]>;
  /**
   * Takes a snapshot of a machine. Does nothing if the snapshot exists. `memoryMb`: MiB of memory to save, or 0 for a
   * disk snapshot; the time-out grows with it.
   */
  takeSnapshot(machineId: string, snapshotId: string, wanted: TakeSnapshot, memoryMb: number): Promise<HostSnapshot>;
  /** Succeeds also when there is nothing to delete. */
  deleteSnapshot(snapshotId: string): Promise<void>;
  /** Returns the files of a snapshot, with their digests, and what else a copy of it needs. */
  snapshotContent(snapshotId: string): Promise<SnapshotContent>;
  /** Makes the host put one part of a snapshot's file into the object store. */
  uploadPart(snapshotId: string, part: UploadPart): Promise<StoredPart>;
  /** Returns the files of the host's current image of a stack, with their digests. */
  imageContent(stack: string): Promise<ImageContent>;
  /** Makes the host put one part of a file of its image into the object store. */
  uploadImagePart(stack: string, part: UploadPart): Promise<StoredPart>;
  /** Makes machines of the stack possible, or returns the blobs that the host needs first. */
  addImageCopy(stack: string, content: ImageContent): Promise<CopyProgress>;
  /** Returns which parts of a blob the host has. */
  blobProgress(sha256: string): Promise<BlobProgress>;
  /** Makes the host fetch one part of a blob. Goes on where an earlier call was cut. */
  downloadPart(sha256: string, index: number, part: DownloadPart): Promise<void>;
  /** Makes the host put a blob together from its parts. Throws `host_unavailable` when its digest is wrong. */
  assembleBlob(sha256: string, blob: AssembleBlob): Promise<void>;
  /** Makes a copy of another host's snapshot, or returns the blobs that the host needs first. */
  addCopy(snapshotId: string, content: SnapshotContent): Promise<CopyProgress>;
  /** Lists the ids of the snapshots of other hosts of which the host has a copy. */
  listCopies(): Promise<string[]>;
  /** Succeeds also when there is no copy. */
  removeCopy(snapshotId: string): Promise<void>;
  /**
   * Starts a job, unless the machine has it already. With `end`, the answer is that of {@link getJob} after the start. An
   * agent of an earlier version answers at once.
   */
  startJob(machineId: string, jobId: string, job: StartJob, end?: EndQuestion): Promise<JobAnswer>;
  /** Lists the running jobs of a machine. Returns undefined if the host does not know the machine. */
  listRunningJobs(machineId: string): Promise<JobReport[] | undefined>;
  /** Lists the jobs whose output can be read. Returns undefined if the host does not know the machine. */
  keptOutput(machineId: string): Promise<HostKeptOutput | undefined>;
  /**
   * Returns the job as soon as it has ended, or after `waitMs` milliseconds. Returns undefined if the host does not know
   * it. With `outputLimit`, the answer has the job's output too, if the job has ended and both streams together have at
   * most so many bytes. An agent of an earlier version never answers output.
   */
  getJob(
    machineId: string,
    jobId: string,
    waitMs: number,
    signal?: AbortSignal,
    outputLimit?: number,
  ): Promise<JobAnswer | undefined>;
  cancelJob(machineId: string, jobId: string): Promise<JobReport>;
  readOutput(
    machineId: string,
    jobId: string,
    query: OutputQuery,
    signal?: AbortSignal,
  ): Promise<OutputPage | undefined>;
  /**
   * Asks the guest agent of a machine. The answer comes from the guest, so it may be anything. Is never sent twice. Also
   * throws the refusals of the guest.
   */
  callGuest(machineId: string, name: GuestCallName, params: unknown, signal?: AbortSignal): Promise<unknown>;
  /**
   * Opens a stream to the guest agent of a machine. Its head and result come from the guest, so they may be anything.
   * When `signal` is aborted, the stream is cut with its reason. Also throws the refusals of the guest.
   */
  openStream(machineId: string, name: GuestStreamName, params: unknown, signal: AbortSignal): Promise<HostStream>;
  /**
   * Opens a connection to a TCP port of a machine. When `signal` is aborted, it is destroyed. Throws `port_not_open` with
   * the open ports, and `conflict` for a machine that does not run.
   */
  connectPort(machineId: string, port: number, signal: AbortSignal): Promise<Duplex>;
  /**
   * Returns what is missing on the host and what should not be there, according to the host's own records. Also lists
   * the host's machines, volumes and snapshots.
   */
  audit(): Promise<HostAudit>;
  /** Repairs what can be repaired safely on the host, and audits the host again. */
  fixAudit(): Promise<HostAuditFix>;
  /** Asks the agent of a joined host for a new key and a request for its certificate. Its old key stays in use. */
  requestCertificate(): Promise<AgentCertificateRequest>;
  /** Gives the agent the certificate for its last request. It uses it for new connections. */
  installCertificate(certificate: AgentCertificate): Promise<void>;
  /** Opens the event stream. It ends or throws when the connection breaks. */
  events(signal: AbortSignal): AsyncIterable<HostEvent>;
  /** Closes the connections that carry no call. The next call opens a new one. */
  closeIdle(): void;
  close(): void;
};

/** The host gave no usable answer. `mayHaveActed` is false if the request certainly did not reach the host. */
export class HostUnavailable extends ServiceError {
  readonly mayHaveActed: boolean;
  constructor(mayHaveActed: boolean, cause?: unknown) {
    super('host_unavailable', "The machine's host does not answer now. Retry later.", { retryAfterSec: 2, cause });
    this.mayHaveActed = mayHaveActed;
  }
}

/** Time-out of a call, in milliseconds, in addition to the time that the call asks the host to wait. */
const SLACK_MS = 10_000;
/** Time-out of the question for the facts of a host, in milliseconds. It also shows that the host answers. */
const INFO_MS = 3_000;
/** Time-out of a delete, in milliseconds. The host needs up to 10 s to stop the machine and then deletes its files. */
const REMOVE_MS = 30_000;
/**
 * Time-out of a disk snapshot, in milliseconds, although it usually takes moments. For a snapshot with memory,
 * `memoryMs` is added.
 */
const SNAPSHOT_MS = 60_000;
/** Returns how long a slow disk (50 MB/s) needs to write or read this much memory, in milliseconds. */
export const memoryMs = (memoryMb: number): number => memoryMb * 20;
/** Time-out of calls in which a host reads or writes a whole file, in milliseconds: 30 GB on a slow disk (50 MB/s). */
const DIGEST_MS = 600_000;
/** Time-out of the transfer of one part, in milliseconds. The host tries it several times. */
const PART_MS = 300_000;
/** How long a guest may take to open a stream, in milliseconds. */
const OPEN_STREAM_MS = 40_000;
/** Time-out of an audit, in milliseconds. The host checks all its processes and files. */
const AUDIT_MS = 60_000;
/** How many characters of an answer that is not JSON are logged. */
const LOGGED_CHARACTERS = 200;

/** Creates a client of an agent. It connects at the first call. */
export function createHostClient(target: HostTarget, tracing: Tracing = NO_TRACING): HostClient {
  const transport = createTransport(target);
  const streams = new StreamTransport(target, {
    refused: refusalText,
    ended: (error) => refusal(200, error),
    broken: unavailable,
  });

  /** Sends a call and returns its successful answer; the body has not been read yet. Throws the host's refusal. */
  const send = async (call: Call): Promise<Answer> => {
    const answer = await transport.send({ ...call, headers: tracing.headers() }).catch((error: unknown) => {
      throw unavailable(error);
    });
    if (answer.status >= 300)
      throw refusal(answer.status, parseAnswer(call, answer.status, (await read(answer)).toString()));
    return answer;
  };
  const traced = <T>(method: string, path: string, work: () => Promise<T>): Promise<T> =>
    tracing.span(spanNameOf(method, path), { kind: 'client' }, work);
  const json = async <T>(call: Call): Promise<T> => {
    const [answer, text] = await traced(call.method, call.path, async () => {
      const answer = await send(call);
      return [answer, (await read(answer)).toString()];
    });
    // The agent uses the same schemas, so the fields are not validated again.
    return (text === '' ? undefined : parseAnswer(call, answer.status, text)) as T;
  };

  const openStream = (id: string, name: GuestStreamName, params: unknown, signal: AbortSignal) => {
    const path = HOST_PATHS.guestStream.replace(':id', id).replace(':name', name);
    return traced('POST', path, () => streams.open(path, params, OPEN_STREAM_MS, signal, tracing.headers()));
  };

  return {
    info: async () => {
      const info = await json<HostInfo>({ method: 'GET', path: HOST_PATHS.host, timeoutMs: INFO_MS });
      checkId(target, info);
      return info;
    },
    listMachines: async () => {
      const list = await json<{ machines: MachineReport[] }>({
        method: 'GET',
        path: HOST_PATHS.machines,
        timeoutMs: SLACK_MS,
      });
      return list.machines;
    },
    getMachine: (id) => orAbsent(json({ method: 'GET', path: machinePath(id), timeoutMs: SLACK_MS })),
    ensureMachine: (id, body, timeoutMs, options) => {
      const query = options?.onlyIfRunning ? { query: { only_if_running: 'true' } } : {};
      return json({ method: 'PUT', path: machinePath(id), ...query, body, timeoutMs });
    },
    deleteMachine: async (id, generation, keepVolumeId) => {
      const query = { generation, ...(keepVolumeId === undefined ? {} : { keep_volume_id: keepVolumeId }) };
      const deleting = json({ method: 'DELETE', path: machinePath(id), query, timeoutMs: REMOVE_MS });
      // A missing machine is an error only when its disk should be kept: then the caller must know that there is no
      // disk.
      await (keepVolumeId === undefined ? orAbsent(deleting) : deleting);
    },
    deleteMachineCopy: async (id, generation) => {
      const query = { generation, with_snapshots: 'true' };
      await orAbsent(json({ method: 'DELETE', path: machinePath(id), query, timeoutMs: REMOVE_MS }));
    },
    listVolumes: async () => {
      const list = await json<{ volumes: HostVolume[] }>({
        method: 'GET',
        path: HOST_PATHS.volumes,
        timeoutMs: SLACK_MS,
      });
      return list.volumes;
    },
    ensureVolume: (id, sizeGb) =>
      json({ method: 'PUT', path: volumePath(id), body: { size_gb: sizeGb }, timeoutMs: SLACK_MS }),
    deleteVolume: async (id, generation) => {
      const query = generation === undefined ? {} : { query: { generation } };
      await orAbsent(json({ method: 'DELETE', path: volumePath(id), ...query, timeoutMs: REMOVE_MS }));
    },
    sendCopy: (of, signal) =>
      traced('GET', copyPath(of), async () => (await send({ method: 'GET', path: copyPath(of), signal })).body),
    receiveCopy: (of, generation, content, signal) =>
      json({ method: 'PUT', path: copyPath(of), query: { generation }, content, signal }),
    listSnapshots: async () => {
      const list = await json<{ snapshots: HostSnapshot[] }>({
        method: 'GET',
        path: HOST_PATHS.snapshots,
        timeoutMs: SLACK_MS,
      });
      return list.snapshots;
    },
    takeSnapshot: (id, snapshotId, body, memoryMb) => {
      const path = HOST_PATHS.machineSnapshot.replace(':id', id).replace(':snapshot_id', snapshotId);
      return json({ method: 'PUT', path, body, timeoutMs: SNAPSHOT_MS + memoryMs(memoryMb) });
    },
    deleteSnapshot: async (id) => {
      const path = HOST_PATHS.snapshot.replace(':id', id);
      await orAbsent(json({ method: 'DELETE', path, timeoutMs: REMOVE_MS }));
    },
    snapshotContent: (id) =>
      json({ method: 'GET', path: BLOB_PATHS.snapshotContent.replace(':id', id), timeoutMs: DIGEST_MS }),
    uploadPart: (id, body) =>
      json({ method: 'POST', path: BLOB_PATHS.snapshotPart.replace(':id', id), body, timeoutMs: PART_MS }),
    imageContent: (stack) =>
      json({ method: 'GET', path: imagePath(BLOB_PATHS.imageContent, stack), timeoutMs: DIGEST_MS }),
    uploadImagePart: (stack, body) =>
      json({ method: 'POST', path: imagePath(BLOB_PATHS.imagePart, stack), body, timeoutMs: PART_MS }),
    addImageCopy: (stack, body) =>
      json({ method: 'PUT', path: imagePath(BLOB_PATHS.imageCopy, stack), body, timeoutMs: SLACK_MS }),
    blobProgress: (sha256) => json({ method: 'GET', path: blobPath(sha256), timeoutMs: SLACK_MS }),
    downloadPart: (sha256, index, body) => {
      const path = BLOB_PATHS.blobPart.replace(':sha256', sha256).replace(':index', String(index));
      return json({ method: 'PUT', path, body, timeoutMs: PART_MS });
    },
    assembleBlob: (sha256, body) => json({ method: 'PUT', path: blobPath(sha256), body, timeoutMs: DIGEST_MS }),
    addCopy: (id, body) => json({ method: 'PUT', path: snapshotCopyPath(id), body, timeoutMs: SLACK_MS }),
    listCopies: async () => {
      const list = await json<HostCopyList>({
        method: 'GET',
        path: BLOB_PATHS.snapshotCopies,
        timeoutMs: SLACK_MS,
      });
      return list.snapshot_ids;
    },
    removeCopy: async (id) => {
      await orAbsent(json({ method: 'DELETE', path: snapshotCopyPath(id), timeoutMs: REMOVE_MS }));
    },
    startJob: (id, jobId, body, end) => {
      const query = end ? { wait_ms: end.waitMs, output_limit: end.outputLimit } : {};
      const timeoutMs = SLACK_MS + (end?.waitMs ?? 0);
      return json({ method: 'PUT', path: jobPath(id, jobId), query, body, timeoutMs });
    },
    listRunningJobs: async (id) => {
      const path = HOST_PATHS.jobs.replace(':id', id);
      const list = await orAbsent(json<{ jobs: JobReport[] }>({ method: 'GET', path, timeoutMs: SLACK_MS }));
      return list?.jobs;
    },
    keptOutput: (id) => {
      const path = HOST_PATHS.keptOutput.replace(':id', id);
      return orAbsent(json<HostKeptOutput>({ method: 'GET', path, timeoutMs: SLACK_MS }));
    },
    getJob: (id, jobId, waitMs, signal, outputLimit) => {
      const query = { wait_ms: waitMs, ...(outputLimit === undefined ? {} : { output_limit: outputLimit }) };
      return orAbsent(json({ method: 'GET', path: jobPath(id, jobId), query, timeoutMs: waitMs + SLACK_MS, signal }));
    },
    cancelJob: (id, jobId) => {
      const path = `${jobPath(id, jobId)}/cancel`;
      return json({ method: 'POST', path, timeoutMs: SLACK_MS });
    },
    readOutput: async (id, jobId, { stream, offset, limit, waitMs }, signal) => {
      const query = { stream, offset, limit, wait_ms: waitMs };
      const path = `${jobPath(id, jobId)}/output`;
      const call: Call = { method: 'GET', path, query, timeoutMs: waitMs + SLACK_MS, signal };
      const reading = traced(call.method, path, async () => {
        const answer = await send(call);
        return {
          bytes: await read(answer),
          nextOffset: Number(answer.headers[OUTPUT_HEADERS.nextOffset]),
          totalBytes: Number(answer.headers[OUTPUT_HEADERS.totalBytes]),
          eof: answer.headers[OUTPUT_HEADERS.eof] === 'true',
        };
      });
      return orAbsent(reading);
    },
    callGuest: (id, name, params, signal) => {
      const path = HOST_PATHS.guestCall.replace(':id', id).replace(':name', name);
      const timeoutMs = GUEST_CALLS[name].timeoutMs + SLACK_MS;
      return json({ method: 'POST', path, body: params, timeoutMs, signal, isSentOnce: true });
    },
    openStream,
    connectPort: async (id, port, signal) => {
      if (!('socketPath' in target)) return toPortConnection(await openStream(id, 'ports.connect', { port }, signal));
      const { socketPath } = target;
      const path = HOST_PATHS.port.replace(':id', id).replace(':port', String(port));
      const errors = { refused: refusalText, broken: unavailable };
      return traced('GET', path, () => openPortSocket(socketPath, path, signal, errors, tracing.headers()));
    },
    audit: () => json({ method: 'GET', path: HOST_PATHS.audit, timeoutMs: AUDIT_MS }),
    fixAudit: () => json({ method: 'POST', path: HOST_PATHS.auditFix, timeoutMs: AUDIT_MS }),
    requestCertificate: () => json({ method: 'POST', path: CERTIFICATE_PATHS.request, timeoutMs: SLACK_MS }),
    installCertificate: (body) =>
      json({ method: 'PUT', path: CERTIFICATE_PATHS.certificate, body, timeoutMs: SLACK_MS }),
    events: async function* (signal) {
      const call: Call = { method: 'GET', path: HOST_PATHS.events, signal };
      yield* readEvents(call, await send(call));
    },
    closeIdle: transport.closeIdle,
    close: () => {
      transport.close();
      streams.close();
    },
  };
}

async function* readEvents(call: Call, answer: Answer): AsyncGenerator<HostEvent> {
  let rest = '';
  answer.body.setEncoding('utf8');
  for await (const chunk of answer.body) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line !== '') yield parseAnswer(call, answer.status, line) as HostEvent;
  }
}

const read = (answer: Answer): Promise<Buffer> =>
  readBytes(answer).catch((error: unknown) => {
    throw unavailable(error);
  });

/** The name of a call in traces: its path without ids and port numbers, so that there are few names. */
const spanNameOf = (method: string, path: string): string =>
  `host ${method} ${path
    .replace(/\/[0-9a-f]{8}-[0-9a-f-]{27}/gi, '/:id')
    .replace(/\/[0-9a-f]{64}/, '/:sha256')
    .replace(/\/parts\/\d+/, '/parts/:index')
    .replace(/\/ports\/\d+/, '/ports/:port')}`;

const machinePath = (id: string) => HOST_PATHS.machine.replace(':id', id);
const copyPath = ({ kind, id }: CopySubject) =>
  (kind === 'volume' ? HOST_PATHS.volumeCopy : HOST_PATHS.machineCopy).replace(':id', id);
const imagePath = (path: string, stack: string) => path.replace(':stack', encodeURIComponent(stack));
const blobPath = (sha256: string) => BLOB_PATHS.blob.replace(':sha256', sha256);
const snapshotCopyPath = (id: string) => BLOB_PATHS.snapshotCopy.replace(':id', id);
const volumePath = (id: string) => HOST_PATHS.volume.replace(':id', id);
const jobPath = (id: string, jobId: string) => HOST_PATHS.job.replace(':id', id).replace(':job_id', jobId);

/** Throws `host_unavailable` when the agent of a joined host says that it has another id. */
function checkId(target: HostTarget, info: HostInfo): void {
  if ('socketPath' in target || info.host_id === target.hostId) return;
  throw new HostUnavailable(true, new Error(`The agent of host ${target.hostId} says that it is ${info.host_id}.`));
}

/** Turns the error `not_found` into undefined. */
async function orAbsent<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not_found') return undefined;
    throw error;
  }
}

function unavailable(error: unknown): HostUnavailable {
  return new HostUnavailable(!wasNeverSent(error), error);
}

/**
 * Parses an answer. Throws `host_unavailable` for text that is not JSON; the host may have acted on the call all the
 * same.
 */
function parseAnswer({ method, path }: Call, status: number, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const begin = JSON.stringify(text.slice(0, LOGGED_CHARACTERS));
    const cause = new Error(`The host answered ${method} ${path} with status ${status} and no JSON: ${begin}`);
    throw new HostUnavailable(true, cause);
  }
}

/** Returns the ServiceError that the text of an error response names. */
function refusalText(status: number, text: string): ServiceError {
  try {
    return refusal(status, JSON.parse(text));
  } catch {
    return new HostUnavailable(true, new Error(`The host answered with status ${status} and no JSON.`));
  }
}

/** Returns the ServiceError that the body of an error response names. */
function refusal(status: number, body: unknown): ServiceError {
  const { code, detail } = Object(body) as { code?: unknown; detail?: unknown };
  if (isErrorCode(code) && typeof detail === 'string') return new ServiceError(code, detail);
  return new ServiceError('internal_error', `The host answered with status ${status}.`);
}
