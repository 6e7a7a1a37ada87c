// A session with the guest agent over HTTP/2. The guest may be hostile, so the client limits the size of headers and
// bodies, its own memory use, and how long the guest may take.
import { randomBytes } from 'node:crypto';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import type { Socket } from 'node:net';
import { isErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { FloodWatch } from './flood-watch.ts';
import { readFrames } from './frames.ts';
import type {
  Guest,
  GuestIdentity,
  GuestJob,
  JobFrame,
  JobSpec,
  StreamOffsets,
  VolumeMount,
  WarmUpProgram,
} from './guest.ts';
import { parseGuestJobs } from './guest-job.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import { WorkBudget } from './work-budget.ts';

const MAX_HEADER_BYTES = 8 * 1024;
const MAX_JSON_BYTES = 1024 * 1024;
const ENTROPY_BYTES = 64;
/**
 * Longest error text that is passed on from the guest, in characters. It fits the paths of five processes that use a
 * busy volume.
 */
const MAX_DETAIL = 900;
/** A request takes about 2 ms under emulation, so only a request that hangs takes this long. */
const REQUEST_TIMEOUT_MS = 20_000;
/** For requests that write the guest's dirty pages to its disk first: enough for a gigabyte on a slow disk. */
const FLUSH_TIMEOUT_MS = 120_000;
/** How many received bytes of a job's stream may wait in memory to be read. */
const STREAM_WINDOW_BYTES = 1024 * 1024;
const SESSION_WINDOW_BYTES = 8 * 1024 * 1024;

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

type Answer = { status: number; stream: ClientHttp2Stream };

export class GuestClient implements Guest {
  readonly closed: Promise<void>;
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #timeoutMs: number;
  readonly #flushTimeoutMs: number;
  readonly #flood: FloodWatch;
  readonly #budget: WorkBudget;

  /**
   * `socket`: a socket on which `openSession` has resolved. `timeoutMs`: how long the head of a response may take, and
   * then its JSON body. `flushTimeoutMs`: how long the head may take when the request writes to the guest's disks.
   */
  constructor(
    socket: Socket,
    timeoutMs = REQUEST_TIMEOUT_MS,
    flushTimeoutMs = FLUSH_TIMEOUT_MS,
    budget = new WorkBudget(),
  ) {
    this.#budget = budget;
    this.#timeoutMs = timeoutMs;
    this.#flushTimeoutMs = flushTimeoutMs;
    this.#session = connect('http://guest', {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES, maxHeaderListSize: MAX_HEADER_BYTES },
      maxHeaderListPairs: 32,
      maxSessionMemory: 32,
      maxSettings: 16,
      maxOutstandingPings: 4,
    });
    this.#session.on('connect', () => {
      // The session may have been closed before it was connected.
      if (!this.#session.destroyed) this.#session.setLocalWindowSize(SESSION_WINDOW_BYTES);
    });
    this.#socket = socket;
    this.#flood = new FloodWatch(
      () => socket.bytesRead,
      () => this.#end(new Error('the guest floods the host')),
    );
    this.closed = new Promise((resolve) => {
      this.#session.on('error', () => this.#end());
      // After GOAWAY no new request is possible, but the connection would stay open as long as a job's stream is open.
      this.#session.on('goaway', () => this.#end());
      this.#session.on('close', () => {
        this.#flood.end();
        socket.destroy();
        resolve();
      });
    });
  }

  async setIdentity(identity: GuestIdentity): Promise<void> {
    await this.#json('PUT', '/identity', identityBody(identity));
  }

  async warmUp(program: WarmUpProgram): Promise<void> {
    await this.#json('POST', '/warm-up', identityBody(WARM_UP_IDENTITY));
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
    return this.#frames(jobId, { stdout: 0, stderr: 0 }, 'PUT', `/jobs/${jobId}`, body);
  }

  async followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>> {
    return this.#frames(
      jobId,
      offsets,
      'GET',
      `/jobs/${jobId}/stream?stdout=${offsets.stdout}&stderr=${offsets.stderr}`,
    );
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

  close(): void {
    this.#end();
  }

  /**
   * Destroys the session and the socket. If only the session were destroyed, it would wait until the guest has read
   * everything that was written, perhaps for ever.
   */
  #end(error?: Error): void {
    this.#session.destroy(error);
    this.#socket.destroy();
  }

  /** `from`: the offsets at which the request asks the output to begin. */
  async #frames(
    jobId: string,
    from: StreamOffsets,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<AsyncIterable<JobFrame>> {
    const { status, stream } = await this.#request(method, path, body);
    if (status >= 300) throw refusal(status, await this.#body(stream, method, path));
    return framesOf(
      jobId,
      readFrames(stream as AsyncIterable<Buffer>, from, (frames, bytes) => this.#budget.spend(frames, bytes)),
    );
  }

  /** Tells the flood watch of each piece of the stream's body. Node calls `push` for each data frame that arrives. */
  #watch(stream: ClientHttp2Stream): void {
    const push = stream.push.bind(stream);
    stream.push = (piece: Buffer | null) => {
      if (piece) this.#flood.onPiece(piece.length);
      return push(piece);
    };
  }

  async #json(method: string, path: string, body?: unknown, timeoutMs = this.#timeoutMs): Promise<unknown> {
    const { status, stream } = await this.#request(method, path, body, timeoutMs);
    const text = await this.#body(stream, method, path);
    if (status >= 300) throw refusal(status, text);
    return text === '' ? undefined : JSON.parse(text);
  }

  async #body(stream: ClientHttp2Stream, method: string, path: string): Promise<string> {
    const timer = setTimeout(() => stream.destroy(noAnswer(method, path)), this.#timeoutMs);
    try {
      return await readBody(stream as AsyncIterable<Buffer>);
    } finally {
      clearTimeout(timer);
    }
  }

  #request(method: string, path: string, body?: unknown, timeoutMs = this.#timeoutMs): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#session.closed || this.#session.destroyed)
        return reject(new Error('the session with the guest is over'));
      const stream = this.#session.request(
        { ':method': method, ':path': path, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
        { endStream: body === undefined },
      );
      this.#watch(stream);
      const timer = setTimeout(() => {
        stream.close(constants.NGHTTP2_CANCEL);
        reject(noAnswer(method, path));
      }, timeoutMs);
      const settle =
        <A extends unknown[]>(action: (...args: A) => void) =>
        (...args: A) => {
          clearTimeout(timer);
          action(...args);
        };
      stream.once(
        'response',
        settle((headers) => resolve({ status: Number(headers[':status']), stream })),
      );
      stream.once('error', settle(reject));
      stream.once(
        'close',
        settle(() => reject(new Error('the session with the guest broke off'))),
      );
      if (body !== undefined) stream.end(JSON.stringify(body));
    });
  }
}

function identityBody(identity: GuestIdentity) {
  return {
    machine_id: identity.machineId,
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

function noAnswer(method: string, path: string): Error {
  return new Error(`the guest did not answer ${method} ${path} in time`);
}

async function readBody(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > MAX_JSON_BYTES) throw new Error('the guest sent a body that is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
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

/** The error codes that a guest may use. The other codes are about the service, which a guest must not speak for. */
const REFUSALS: readonly unknown[] = ['validation_error', 'not_found', 'conflict'];

/**
 * Returns the error for a guest's refusal. A guest that refuses has done nothing, even when it only lacked resources,
 * such as memory for a process.
 */
function refusal(status: number, text: string): Error {
  const { code, detail } = parseRefusal(text);
  if (REFUSALS.includes(code) && isErrorCode(code)) return new ServiceError(code, detail);
  return new ServiceError('host_unavailable', `the machine's guest agent could not do it (${status}): ${detail}`, {
    retryAfterSec: 5,
  });
}

function parseRefusal(text: string): { code: unknown; detail: string } {
  try {
    const { code, detail } = Object(JSON.parse(text)) as { code?: unknown; detail?: unknown };
    return { code, detail: String(detail).slice(0, MAX_DETAIL) };
  } catch {
    return { code: undefined, detail: 'no reason given' };
  }
}
