// The calls to a guest agent as requests: methods, paths and JSON bodies (guest-agent/README.md). A transport carries
// them. The guest may be hostile, so every answer is checked, and every request has a time limit.
import { randomBytes } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type {
  Guest,
  GuestClaim,
  GuestIdentity,
  GuestJob,
  GuestLease,
  JobFrame,
  JobSpec,
  StreamOffsets,
  VolumeMount,
  WarmUpProgram,
} from './guest.ts';
import { parseGuestJobs } from './guest-job.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import type { GuestStream } from './guest-stream.ts';
import { type GuestRequest, type GuestTransport, MAX_JSON_BYTES } from './guest-transport.ts';
import { refusalOf } from './refusal.ts';

const ENTROPY_BYTES = 64;
/** A request takes about 2 ms under emulation, so only a request that hangs takes this long. */
const REQUEST_TIMEOUT_MS = 20_000;
/** For requests that write the guest's dirty pages to its disk first: enough for a gigabyte on a slow disk. */
const FLUSH_TIMEOUT_MS = 120_000;

/**
 * The ids of the warm-up jobs, the only jobs that a machine without an identity runs. The guest knows their commands.
 */
const WARM_UP_JOBS: Record<WarmUpProgram, string> = { agent: 'warm-up', shell: 'warm-up-shell' };
/**
 * The identity for a warm-up. Its values are as long as real ones. Its addresses are reserved for documentation (RFC
 * 5737, RFC 7042).
 */
const WARM_UP_IDENTITY: GuestIdentity = {
  machineId: '00000000-0000-7000-8000-000000000000',
  hostname: 'warm-up',
  address: '192.0.2.2/24',
  gateway: '192.0.2.1',
  nameServers: ['192.0.2.1'],
  mac: '02:00:5e:00:53:01',
  mtu: 1500,
};

export class GuestClient implements Guest {
  readonly #transport: GuestTransport;
  readonly #timeoutMs: number;
  readonly #flushTimeoutMs: number;

  /** `flushTimeoutMs`: how long a request may take that writes to the guest's disks; `timeoutMs`: all others. */
  constructor(transport: GuestTransport, timeoutMs = REQUEST_TIMEOUT_MS, flushTimeoutMs = FLUSH_TIMEOUT_MS) {
    this.#transport = transport;
    this.#timeoutMs = timeoutMs;
    this.#flushTimeoutMs = flushTimeoutMs;
  }

  get closed(): Promise<void> {
    return this.#transport.closed;
  }

  async checkBare(): Promise<void> {
    const { awaits_disk } = Object(await this.#json('GET', '/healthz')) as { awaits_disk?: unknown };
    if (awaits_disk !== true) throw new ServiceError('conflict', 'the guest agent has mounted its root disk already');
  }

  async setIdentity(identity: GuestIdentity): Promise<void> {
    await this.#json('PUT', '/identity', identityBody(identity));
  }

  async lease(lease: GuestLease): Promise<boolean> {
    const answer = await this.#json('POST', '/lease', identityBody({ ...WARM_UP_IDENTITY, ...lease }));
    return (Object(answer) as { has_names?: unknown }).has_names === true;
  }

  async claim({ machineId, diskBytes }: GuestClaim): Promise<void> {
    const disk = diskBytes === undefined ? {} : { disk_bytes: diskBytes };
    await this.#json('POST', '/claim', { machine_id: machineId, time_unix_ms: Date.now(), ...disk });
  }

  async warmUp(program: WarmUpProgram): Promise<void> {
    await this.#json('POST', '/warm-up', identityBody(WARM_UP_IDENTITY));
    await this.warmUpJob(program);
  }

  async warmUpJob(program: WarmUpProgram): Promise<void> {
    const job = WARM_UP_JOBS[program];
    const frames = await this.startJob(job, { command: 'true', timeout_sec: 10 }, MAX_JSON_BYTES);
    const offsets = { stdout: 0, stderr: 0 };
    for await (const frame of frames) {
      if (frame.type === 'output') offsets[frame.stream] = frame.offset + frame.bytes.length;
    }
    await this.acknowledgeOutput(job, offsets);
    await this.forgetJob(job);
    if ((await this.listJobs()).length > 0) throw new Error('the guest was left with a job by its warm-up');
  }

  async startJob(jobId: string, spec: JobSpec, outputLimitBytes: number): Promise<AsyncIterable<JobFrame>> {
    const body = { ...spec, max_output_bytes: outputLimitBytes };
    return this.#frames(jobId, { stdout: 0, stderr: 0 }, { method: 'PUT', path: `/jobs/${jobId}`, body });
  }

  async followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>> {
    const path = `/jobs/${jobId}/stream?stdout=${offsets.stdout}&stderr=${offsets.stderr}`;
    return this.#frames(jobId, offsets, { method: 'GET', path });
  }

  async acknowledgeOutput(jobId: string, offsets: StreamOffsets): Promise<void> {
    await this.#json('POST', `/jobs/${jobId}/ack`, offsets);
  }

  async cancelJob(jobId: string): Promise<void> {
    await this.#json('POST', `/jobs/${jobId}/cancel`);
  }

  async listJobs(): Promise<GuestJob[]> {
    return parseGuestJobs(await this.#json('GET', '/jobs'));
  }

  async forgetJob(jobId: string): Promise<void> {
    await this.#json('DELETE', `/jobs/${jobId}`);
  }

  async mountVolume({ volumeId, slot, path }: VolumeMount): Promise<void> {
    await this.#json('PUT', `/mounts/${volumeId}`, { slot, path }, this.#flushTimeoutMs);
  }

  async unmountVolume(volumeId: string): Promise<void> {
    await this.#json('DELETE', `/mounts/${volumeId}`, undefined, this.#flushTimeoutMs);
  }

  async freeze(timeoutMs: number): Promise<void> {
    await this.#json('POST', '/freeze', { timeout_ms: timeoutMs }, this.#flushTimeoutMs);
  }

  async thaw(): Promise<void> {
    await this.#json('POST', '/thaw');
  }

  async holdProcesses(timeoutMs: number): Promise<void> {
    await this.#json('POST', '/hold', { timeout_ms: timeoutMs });
  }

  async releaseProcesses(): Promise<void> {
    await this.#json('POST', '/release');
  }

  async powerOff(): Promise<void> {
    await this.#json('POST', '/poweroff');
  }

  async call(name: string, params: string, timeoutMs: number): Promise<string> {
    const request = { method: 'POST', path: `/calls/${name}`, json: params, timeoutMs };
    const { status, text } = await this.#transport.json(request);
    if (status >= 300) throw refusal(status, text);
    return text;
  }

  async openStream(name: string, params: string): Promise<GuestStream> {
    const request = { method: 'POST', path: `/streams/${name}`, json: params, timeoutMs: this.#timeoutMs };
    const answer = await this.#transport.duplex(request);
    if ('stream' in answer) return answer.stream;
    throw refusal(answer.status, answer.text);
  }

  close(): void {
    this.#transport.close();
  }

  /** `from`: the offsets at which the request asks the output to begin. */
  async #frames(
    jobId: string,
    from: StreamOffsets,
    request: Pick<GuestRequest, 'method' | 'path' | 'body'>,
  ): Promise<AsyncIterable<JobFrame>> {
    const answer = await this.#transport.stream({ ...request, timeoutMs: this.#timeoutMs }, from);
    if ('frames' in answer) return framesOf(jobId, answer.frames);
    throw refusal(answer.status, answer.text);
  }

  async #json(method: string, path: string, body?: unknown, timeoutMs = this.#timeoutMs): Promise<unknown> {
    const { status, text } = await this.#transport.json({ method, path, body, timeoutMs });
    if (status >= 300) throw refusal(status, text);
    return text === '' ? undefined : JSON.parse(text);
  }
}

function identityBody(identity: GuestIdentity) {
  return {
    machine_id: identity.machineId,
    ...(identity.systemId === undefined ? {} : { system_id: identity.systemId }),
    hostname: identity.hostname,
    address: identity.address,
    gateway: identity.gateway,
    dns: identity.nameServers,
    mac: identity.mac,
    mtu: identity.mtu,
    ...(identity.diskBytes === undefined ? {} : { disk_bytes: identity.diskBytes }),
    ...(identity.wasHeld ? { was_held: true } : {}),
    time_unix_ms: Date.now(),
    entropy: randomBytes(ENTROPY_BYTES).toString('base64'),
  };
}

/** Reads the frames of one job. Throws when the end frame names another job than `jobId`. */
async function* framesOf(jobId: string, frames: AsyncIterable<JobFrame>): AsyncGenerator<JobFrame> {
  for await (const frame of frames) {
    if (frame.type === 'end' && frame.job.id !== jobId) {
      throw new GuestProtocolError('the guest ended a job with the status of another one');
    }
    yield frame;
  }
}

/** Returns the error for an answer that refuses. */
function refusal(status: number, text: string): ServiceError {
  try {
    return refusalOf(Object(JSON.parse(text)), status);
  } catch {
    return refusalOf({ detail: 'no reason given' }, status);
  }
}
