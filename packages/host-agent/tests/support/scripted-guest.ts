// A guest agent without a machine: it answers on a Unix socket like a real one behind QEMU, and a test says what its
// jobs print. It keeps the output of a job, so that a new session can read it from any offset.
import { EventEmitter, once } from 'node:events';
import { linkSync } from 'node:fs';
import { createServer as createHttp2, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { createServer, type Server, type Socket } from 'node:net';

/**
 * The sizes of the greeting alone, and of the whole message that opens a session: greeting, token and epoch
 * (guest/channel.ts).
 */
const [GREETING_BYTES, HELLO_BYTES] = [32, 72];
const STDOUT = 1;
const END = 3;
const PIECE = 256 * 1024;

type ScriptedJob = { output: Buffer; isEnded: boolean; changes: EventEmitter };
export type Answer = (stream: ServerHttp2Stream, method: string, path: string) => boolean;

export class ScriptedGuest {
  readonly jobs = new Map<string, ScriptedJob>();
  readonly requests: string[] = [];
  /** How many sessions were opened. */
  sessions = 0;
  /** Called when a job is started. */
  onStart: (jobId: string) => void = () => {};
  /** Called with each request. If it returns true, it has answered the request, and the guest does not. */
  answer: Answer = () => false;
  readonly #server: Server;
  readonly #http: Http2Server;
  readonly #sockets = new Set<Socket>();

  private constructor() {
    this.#http = createHttp2().on('stream', (stream, headers) => {
      stream.on('error', () => {});
      void this.#serve(stream, String(headers[':method']), String(headers[':path'])).catch(() => {});
    });
    this.#http.on('sessionError', () => {});
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async listen(path: string): Promise<ScriptedGuest> {
    const guest = new ScriptedGuest();
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
      socket.write(hello.subarray(GREETING_BYTES));
      this.#http.emit('connection', socket);
    };
    socket.on('data', onData);
  }

  async #serve(stream: ServerHttp2Stream, method: string, path: string): Promise<void> {
    this.requests.push(`${method} ${path}`);
    if (this.answer(stream, method, path)) return;
    const url = new URL(path, 'http://guest');
    const jobId = /^\/jobs\/([^/]+)/.exec(url.pathname)?.[1] ?? '';
    if (method === 'GET' && path === '/jobs') return this.#answerJson(stream, { jobs: this.#reports() });
    if (method === 'PUT' && jobId) {
      const isNew = !this.jobs.has(jobId);
      this.#job(jobId);
      if (isNew) this.onStart(jobId);
      return this.#follow(stream, jobId, 0);
    }
    if (method === 'GET' && jobId) return this.#follow(stream, jobId, Number(url.searchParams.get('stdout')));
    if (method === 'DELETE' && jobId) this.jobs.delete(jobId);
    this.#answerJson(stream, undefined);
  }

  #reports() {
    return [...this.jobs].map(([id, job]) => reportOf(id, job));
  }

  #answerJson(stream: ServerHttp2Stream, body: unknown): void {
    stream.respond({ ':status': 200 });
    stream.end(body === undefined ? '' : JSON.stringify(body));
  }

  async #follow(stream: ServerHttp2Stream, jobId: string, from: number): Promise<void> {
    const job = this.#job(jobId);
    stream.respond({ ':status': 200 });
    for (let offset = from; !stream.destroyed; ) {
      const bytes = job.output.subarray(offset, offset + PIECE);
      if (bytes.length > 0) {
        if (!stream.write(frameOf(STDOUT, offset, bytes))) await once(stream, 'drain');
        offset += bytes.length;
      } else if (job.isEnded) {
        stream.end(frameOf(END, 0, Buffer.from(JSON.stringify(reportOf(jobId, job)))));
        return;
      } else await once(job.changes, 'change');
    }
  }
}

function reportOf(id: string, job: ScriptedJob) {
  const status = job.isEnded ? 'exited' : 'running';
  const bytes = { stdout_bytes: job.output.length, stderr_bytes: 0 };
  return { id, status, exit_code: job.isEnded ? 0 : null, signal: null, ...bytes, truncated: false };
}

/** A frame of a job's stream as guests send it (guest/frames.ts). */
export function frameOf(type: number, offset: number, payload: Buffer): Buffer {
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
