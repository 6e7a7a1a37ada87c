// A guest agent without a machine: it answers on a Unix socket like a real one behind QEMU, and a test says what its
// jobs print. It speaks frames, or HTTP/2 like an older agent. It keeps the output of a job, so that a new session can
// read it from any offset.
import { EventEmitter, once } from 'node:events';
import { linkSync } from 'node:fs';
import { createServer as createHttp2, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { createServer, type Server, type Socket } from 'node:net';
import type { GuestProtocol } from '../../src/guest/channel.ts';
import { beginOf, endOf, type GuestCall, serveFrames } from './frame-guest.ts';

/**
 * The sizes of the greeting alone, and of the whole message that opens a session: greeting, token and epoch
 * (guest/channel.ts).
 */
const [GREETING_BYTES, HELLO_BYTES] = [32, 72];
const EPOCH_AT = 64;
const STDOUT = 1;
const END = 3;
const PIECE = 256 * 1024;

type ScriptedJob = { output: Buffer; isEnded: boolean; changes: EventEmitter };
/** Answers one request. */
type Reply = {
  isOver: () => boolean;
  /** Answers with JSON; without a body if `body` is undefined. */
  json: (body: unknown) => void;
  begin: () => void;
  /** Sends output. Resolves when there is room for more. */
  output: (offset: number, bytes: Buffer) => Promise<unknown>;
  end: (job: unknown) => void;
};
export type Answer = (method: string, path: string) => boolean;

export class ScriptedGuest {
  readonly jobs = new Map<string, ScriptedJob>();
  readonly requests: string[] = [];
  /** How many sessions were opened. */
  sessions = 0;
  /** Called when a job is started. */
  onStart: (jobId: string) => void = () => {};
  /** Called with each request. If it returns true, the guest does not answer the request. */
  answer: Answer = () => false;
  readonly #protocol: GuestProtocol;
  readonly #server: Server;
  readonly #http: Http2Server;
  readonly #sockets = new Set<Socket>();

  private constructor(protocol: GuestProtocol) {
    this.#protocol = protocol;
    this.#http = createHttp2().on('stream', (stream, headers) => {
      stream.on('error', () => {});
      const [method, path] = [String(headers[':method']), String(headers[':path'])];
      this.#serve(http2Reply(stream), method, path).catch(() => {});
    });
    this.#http.on('sessionError', () => {});
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async listen(path: string, protocol: GuestProtocol = 'frames'): Promise<ScriptedGuest> {
    const guest = new ScriptedGuest(protocol);
    await new Promise<void>((resolve) => guest.#server.listen(path, resolve));
    return guest;
  }

  print(jobId: string, text: string | Buffer): void {
    const job = this.#job(jobId);
    job.output = Buffer.concat([job.output, Buffer.from(text)]);
    job.changes.emit('change');
  }

  end(jobId: string): void {
    const job = this.#job(jobId);
    job.isEnded = true;
    job.changes.emit('change');
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #job(jobId: string): ScriptedJob {
    const job = this.jobs.get(jobId) ?? { output: Buffer.alloc(0), isEnded: false, changes: new EventEmitter() };
    this.jobs.set(jobId, job);
    return job;
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
    let hello = Buffer.alloc(0);
    const onData = (chunk: Buffer) => {
      hello = Buffer.concat([hello, chunk]);
      // The host sends nothing else until the guest echoes token and epoch.
      if (hello.length < HELLO_BYTES) return;
      socket.off('data', onData);
      socket.pause();
      this.sessions++;
      if (this.#protocol === 'http2') {
        socket.write(hello.subarray(GREETING_BYTES));
        this.#http.emit('connection', socket);
        return;
      }
      const epoch = hello.subarray(EPOCH_AT).map((byte) => byte ^ 0xff);
      socket.write(Buffer.concat([hello.subarray(GREETING_BYTES, EPOCH_AT), epoch]));
      serveFrames(socket, (call) => {
        this.#serve(frameReply(call), call.method, call.path).catch(() => {});
      });
      socket.resume();
    };
    socket.on('data', onData);
  }

  async #serve(reply: Reply, method: string, path: string): Promise<void> {
    this.requests.push(`${method} ${path}`);
    if (this.answer(method, path)) return;
    const url = new URL(path, 'http://guest');
    const jobId = /^\/jobs\/([^/]+)/.exec(url.pathname)?.[1] ?? '';
    if (method === 'GET' && path === '/jobs') return reply.json({ jobs: this.#reports() });
    if (method === 'PUT' && jobId) {
      const isNew = !this.jobs.has(jobId);
      this.#job(jobId);
      if (isNew) this.onStart(jobId);
      return this.#follow(reply, jobId, 0);
    }
    if (method === 'GET' && jobId) return this.#follow(reply, jobId, Number(url.searchParams.get('stdout')));
    if (method === 'DELETE' && jobId) this.jobs.delete(jobId);
    reply.json(undefined);
  }

  #reports() {
    return [...this.jobs].map(([id, job]) => reportOf(id, job));
  }

  async #follow(reply: Reply, jobId: string, from: number): Promise<void> {
    const job = this.#job(jobId);
    reply.begin();
    for (let offset = from; !reply.isOver(); ) {
      const bytes = job.output.subarray(offset, offset + PIECE);
      if (bytes.length > 0) {
        await reply.output(offset, bytes);
        offset += bytes.length;
      } else if (job.isEnded) {
        reply.end(reportOf(jobId, job));
        return;
      } else await once(job.changes, 'change');
    }
  }
}

function frameReply(call: GuestCall): Reply {
  return {
    isOver: () => call.isOver,
    json: (body) => call.answer(200, body === undefined ? '' : JSON.stringify(body)),
    begin: () => call.send(beginOf(call.id, 200)),
    output: (offset, bytes) => call.output(offset, bytes),
    end: (job) => call.send(endOf(call.id, job)),
  };
}

function http2Reply(stream: ServerHttp2Stream): Reply {
  return {
    isOver: () => stream.destroyed,
    json: (body) => {
      stream.respond({ ':status': 200 });
      stream.end(body === undefined ? '' : JSON.stringify(body));
    },
    begin: () => stream.respond({ ':status': 200 }),
    output: async (offset, bytes) => {
      if (!stream.write(frameOf(STDOUT, offset, bytes))) await once(stream, 'drain');
    },
    end: (job) => stream.end(frameOf(END, 0, Buffer.from(JSON.stringify(job)))),
  };
}

function reportOf(id: string, job: ScriptedJob) {
  const status = job.isEnded ? 'exited' : 'running';
  const bytes = { stdout_bytes: job.output.length, stderr_bytes: 0 };
  return { id, status, exit_code: job.isEnded ? 0 : null, signal: null, ...bytes, truncated: false };
}

/** A frame of a job's stream as older guests send it over HTTP/2 (guest/frames.ts). */
function frameOf(type: number, offset: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(16);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(payload.length, 4);
  header.writeBigUInt64BE(BigInt(offset), 8);
  return Buffer.concat([header, payload]);
}

/** Leaves a socket at `path` on which nobody listens, like the socket of a QEMU that has just started. */
export async function createSocketFile(path: string): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(`${path}.bound`, resolve));
  // Closing the server removes only the name on which it listened, so give the socket a second name.
  linkSync(`${path}.bound`, path);
  await new Promise((resolve) => server.close(resolve));
}
