// The host API over the agent's Unix socket. Every host call may be repeated, so the transport sends a request once
// more when its connection broke. A call that fails all the same, or gets an answer that is not JSON, throws
// `host_unavailable`; a refusal of the host throws the ServiceError that it names.
import { isErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import {
  type EnsureMachine,
  HOST_PATHS,
  type HostAudit,
  type HostAuditFix,
  type HostEvent,
  type HostInfo,
  type HostSnapshot,
  type HostVolume,
  type JobReport,
  type MachineReport,
  OUTPUT_HEADERS,
  type StartJob,
  type TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import { type Answer, type Call, createTransport, readBytes, wasNeverSent } from './transport.ts';

export type OutputPage = { bytes: Buffer; nextOffset: number; totalBytes: number; eof: boolean };
export type OutputQuery = { stream: OutputStream; offset: number; limit: number; waitMs: number };

/** What a host can be asked; tests put a fake in its place. All methods throw `ServiceError`. */
export type HostClient = {
  info(): Promise<HostInfo>;
  listMachines(): Promise<MachineReport[]>;
  /** Undefined when the host does not know the machine. */
  getMachine(machineId: string): Promise<MachineReport | undefined>;
  ensureMachine(machineId: string, wanted: EnsureMachine, timeoutMs: number): Promise<MachineReport>;
  /**
   * Succeeds also when there is nothing to delete. With `keepVolumeId` the root disk becomes that volume,
   * or it throws `not_found` when there is none.
   */
  deleteMachine(machineId: string, generation: number, keepVolumeId?: string): Promise<void>;
  /** The volumes whose disks are there. */
  listVolumes(): Promise<HostVolume[]>;
  /** Makes an empty data volume; one that is there already is left alone. */
  ensureVolume(volumeId: string, sizeGb: number): Promise<HostVolume>;
  /** Succeeds also when there is nothing to delete. */
  deleteVolume(volumeId: string): Promise<void>;
  /** The snapshots whose files are all there. */
  listSnapshots(): Promise<HostSnapshot[]>;
  /**
   * Takes a snapshot of a machine; one that is there already is left alone. `memoryMb`: the memory to write, 0 for
   * none.
   */
  takeSnapshot(machineId: string, snapshotId: string, wanted: TakeSnapshot, memoryMb: number): Promise<HostSnapshot>;
  /** Succeeds also when there is nothing to delete. */
  deleteSnapshot(snapshotId: string): Promise<void>;
  startJob(machineId: string, jobId: string, job: StartJob): Promise<JobReport>;
  /** The jobs that run in a machine; undefined when the host does not know the machine. */
  listRunningJobs(machineId: string): Promise<JobReport[] | undefined>;
  getJob(machineId: string, jobId: string, waitMs: number, signal?: AbortSignal): Promise<JobReport | undefined>;
  cancelJob(machineId: string, jobId: string): Promise<JobReport | undefined>;
  readOutput(
    machineId: string,
    jobId: string,
    query: OutputQuery,
    signal?: AbortSignal,
  ): Promise<OutputPage | undefined>;
  /** What is there that should not be, or is missing, by the host's own records. */
  audit(): Promise<HostAudit>;
  /** Mends what is certainly the host's own, and looks again. */
  fixAudit(): Promise<HostAuditFix>;
  /** The event stream; ends or throws when the connection does. */
  events(signal: AbortSignal): AsyncIterable<HostEvent>;
  close(): void;
};

/** The host gave no usable answer. `mayHaveActed` is false when the request certainly never reached it. */
export class HostUnavailable extends ServiceError {
  readonly mayHaveActed: boolean;
  constructor(mayHaveActed: boolean, cause?: unknown) {
    super('host_unavailable', "The machine's host does not answer now. Retry later.", { retryAfterSec: 2, cause });
    this.mayHaveActed = mayHaveActed;
  }
}

/** A call may take this long on top of the time that it asks the host to wait. */
const SLACK_MS = 10_000;
/** A delete kills the machine, or stops it, which takes the host up to 10 s, and then removes its files. */
const REMOVE_MS = 30_000;
/** For a snapshot of a disk, which takes moments; a snapshot with memory gets `memoryMs` as well. */
const SNAPSHOT_MS = 60_000;
/** How long a slow disk (50 MB a second) takes to write or read the memory of a machine, in milliseconds. */
export const memoryMs = (memoryMb: number): number => memoryMb * 20;
/** An audit looks at every process and file of the host. */
const AUDIT_MS = 60_000;
/** The log gets the beginning of an answer that is not JSON, of this length. */
const LOGGED_CHARACTERS = 200;

/** A client for the agent that listens on `socketPath`; connects when it is first used. */
export function createHostClient(socketPath: string): HostClient {
  const transport = createTransport(socketPath);

  /** Resolves with a successful answer whose body has not been read. */
  const send = async (call: Call): Promise<Answer> => {
    const answer = await transport.send(call).catch((error: unknown) => {
      throw unavailable(error);
    });
    if (answer.status >= 300)
      throw refusal(answer.status, parseAnswer(call, answer.status, (await read(answer)).toString()));
    return answer;
  };
  const json = async <T>(call: Call): Promise<T> => {
    const answer = await send(call);
    const text = (await read(answer)).toString();
    // The agent answers from the same schemas, so the fields are not checked again.
    return (text === '' ? undefined : parseAnswer(call, answer.status, text)) as T;
  };

  return {
    info: () => json<HostInfo>({ method: 'GET', path: HOST_PATHS.host, timeoutMs: 3_000 }),
    listMachines: async () => {
      const list = await json<{ machines: MachineReport[] }>({
        method: 'GET',
        path: HOST_PATHS.machines,
        timeoutMs: SLACK_MS,
      });
      return list.machines;
    },
    getMachine: (id) => orAbsent(json({ method: 'GET', path: machinePath(id), timeoutMs: SLACK_MS })),
    ensureMachine: (id, body, timeoutMs) => json({ method: 'PUT', path: machinePath(id), body, timeoutMs }),
    deleteMachine: async (id, generation, keepVolumeId) => {
      const query = { generation, ...(keepVolumeId === undefined ? {} : { keep_volume_id: keepVolumeId }) };
      const deleting = json({ method: 'DELETE', path: machinePath(id), query, timeoutMs: REMOVE_MS });
      // Where a disk is to be kept, nothing there is an answer of its own.
      await (keepVolumeId === undefined ? orAbsent(deleting) : deleting);
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
    deleteVolume: async (id) => {
      await orAbsent(json({ method: 'DELETE', path: volumePath(id), timeoutMs: REMOVE_MS }));
    },
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
    startJob: (id, jobId, body) => json({ method: 'PUT', path: jobPath(id, jobId), body, timeoutMs: SLACK_MS }),
    listRunningJobs: async (id) => {
      const path = HOST_PATHS.jobs.replace(':id', id);
      const list = await orAbsent(json<{ jobs: JobReport[] }>({ method: 'GET', path, timeoutMs: SLACK_MS }));
      return list?.jobs;
    },
    getJob: (id, jobId, waitMs, signal) => {
      const query = { wait_ms: waitMs };
      return orAbsent(json({ method: 'GET', path: jobPath(id, jobId), query, timeoutMs: waitMs + SLACK_MS, signal }));
    },
    cancelJob: (id, jobId) => {
      const path = `${jobPath(id, jobId)}/cancel`;
      return orAbsent(json({ method: 'POST', path, timeoutMs: SLACK_MS }));
    },
    readOutput: async (id, jobId, { stream, offset, limit, waitMs }, signal) => {
      const query = { stream, offset, limit, wait_ms: waitMs };
      const path = `${jobPath(id, jobId)}/output`;
      const answer = await orAbsent(send({ method: 'GET', path, query, timeoutMs: waitMs + SLACK_MS, signal }));
      if (!answer) return undefined;
      return {
        bytes: await read(answer),
        nextOffset: Number(answer.headers[OUTPUT_HEADERS.nextOffset]),
        totalBytes: Number(answer.headers[OUTPUT_HEADERS.totalBytes]),
        eof: answer.headers[OUTPUT_HEADERS.eof] === 'true',
      };
    },
    audit: () => json({ method: 'GET', path: HOST_PATHS.audit, timeoutMs: AUDIT_MS }),
    fixAudit: () => json({ method: 'POST', path: HOST_PATHS.auditFix, timeoutMs: AUDIT_MS }),
    events: async function* (signal) {
      const call: Call = { method: 'GET', path: HOST_PATHS.events, signal };
      yield* readEvents(call, await send(call));
    },
    close: () => transport.close(),
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

const machinePath = (id: string) => HOST_PATHS.machine.replace(':id', id);
const volumePath = (id: string) => HOST_PATHS.volume.replace(':id', id);
const jobPath = (id: string, jobId: string) => HOST_PATHS.job.replace(':id', id).replace(':job_id', jobId);

/** `not_found` as undefined, for questions where absence is an answer. */
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

/** Throws `host_unavailable` for text that is not JSON; the host may have acted on the call nevertheless. */
function parseAnswer({ method, path }: Call, status: number, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const begin = JSON.stringify(text.slice(0, LOGGED_CHARACTERS));
    const cause = new Error(`The host answered ${method} ${path} with status ${status} and no JSON: ${begin}`);
    throw new HostUnavailable(true, cause);
  }
}

/** The ServiceError that the body of an error response names. */
function refusal(status: number, body: unknown): ServiceError {
  const { code, detail } = Object(body) as { code?: unknown; detail?: unknown };
  if (isErrorCode(code) && typeof detail === 'string') return new ServiceError(code, detail);
  return new ServiceError('internal_error', `The host answered with status ${status}.`);
}
