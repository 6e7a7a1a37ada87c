// A small HTTP server that stands in for the API, and functions that run the CLI against it as a user does. Tests set
// the answers of the server and check which requests it got.
import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { after, before, beforeEach } from 'node:test';

export const CLI = new URL('../../bin/sandbar.mjs', import.meta.url).pathname;

export const MACHINE = '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20';
export const VOLUME = '019b2d6c-6000-7c3e-9a41-0d3f5b8e7a21';
export const SNAPSHOT = '019b2d6c-7000-7c3e-9a41-0d3f5b8e7a22';
export const JOB = '019b2d6c-8000-7c3e-9a41-0d3f5b8e7a23';
/** A machine that does not exist. */
export const ABSENT = '00000000-0000-7000-8000-000000000000';

type Job = { status: string; exit_code: number | null; signal: string | null };
type Refusal = { status: number; code: string; detail?: string };

/** The answers of the server, and the requests that it got. All of it is reset before each test. */
function initialState() {
  return {
    /** Of each request its method and path; of each with a query its method and query; of POST and PATCH the body. */
    calls: [] as string[],
    queries: [] as string[],
    bodies: [] as string[],
    job: { status: 'exited', exit_code: 0, signal: null } as Job,
    /** Fields of the job besides those of `job`. */
    jobFields: {} as Record<string, unknown>,
    stdout: Buffer.alloc(0),
    stderr: Buffer.alloc(0),
    /** How many bytes of stdout the answer to a start contains. The CLI reads the rest from the output stream. */
    firstPageBytes: Number.POSITIVE_INFINITY,
    /** The standard input that the job has accepted, and whether it was closed. */
    stdin: Buffer.alloc(0),
    isStdinClosed: false,
    /** If set, the answer to each write to the job's standard input, which is then not accepted. */
    stdinRefusal: undefined as Refusal | undefined,
    /** If set, the answer to every request. */
    refusal: undefined as Refusal | undefined,
    /** Requests with this path get no answer. */
    silentPath: undefined as string | undefined,
    /** The output streams that are open. `endJob` ends them. */
    outputs: [] as ServerResponse[],
    /** How many requests for the job or its output the server answers with 503 before it serves them. */
    refusals: 0,
    retryAfter: undefined as string | undefined,
    createDelayMs: 0,
    /** Fields that a test adds to the machines, volumes, snapshots and errors in the answers. */
    fields: {} as Record<string, unknown>,
    /** Entries of the activity feed that are newer than all others. */
    newActivity: [] as object[],
    /** Machines, volumes, snapshots and jobs that lists contain besides the first one. */
    others: [] as { id: string; name: string }[],
  };
}

export const api = { ...initialState(), baseUrl: '' };

/** Starts the server for the tests of this file. */
export function useStandIn(): void {
  const server = createServer((request, response) => void serve(request, response));
  before(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    assert.ok(typeof address === 'object' && address !== null);
    api.baseUrl = `http://127.0.0.1:${address.port}`;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  beforeEach(() => {
    Object.assign(api, initialState());
  });
}

export function machine(): Record<string, unknown> {
  return {
    id: MACHINE,
    name: '',
    state: 'running',
    vcpus: 1,
    memory_mb: 256,
    rootfs_size_gb: 2,
    private_ip: '10.0.0.2',
    created_at: 't',
    error: null,
    root_volume_id: VOLUME,
    operation: null,
    expires_at: null,
    on_expiry: 'destroy',
    ...api.fields,
  };
}

function volume(): Record<string, unknown> {
  const place = { machine_id: null, mount_path: null };
  const error = 'The host has lost it.';
  return {
    id: VOLUME,
    name: '',
    kind: 'root',
    size_gb: 10,
    state: 'error',
    ...place,
    error,
    created_at: 't',
    ...api.fields,
  };
}

function snapshot(): Record<string, unknown> {
  const size = { size_gb: 10, stored_bytes: 3_000_000 };
  const error = 'The host has lost it.';
  const source = { machine_id: MACHINE, name: 'before', kind: 'disk' };
  return { id: SNAPSHOT, ...source, ...size, state: 'error', error, created_at: 't', ...api.fields };
}

function job(id = JOB): Record<string, unknown> {
  const bytes = { stdout_bytes: api.stdout.length, stderr_bytes: api.stderr.length };
  const times = { created_at: 't', finished_at: null };
  return { id, name: '', truncated: false, ...bytes, ...times, ...api.job, ...api.jobFields };
}

function pageOf(bytes: Buffer, from: number, to: number) {
  const data = bytes.subarray(from, to);
  const next = from + data.length;
  return {
    offset: from,
    data: data.toString('base64'),
    next_offset: next,
    total_bytes: bytes.length,
    eof: api.job.status !== 'running' && next === bytes.length,
  };
}

type Exchange = { method: string; path: string; query: string; body: Buffer; response: ServerResponse };

async function serve(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const { method = '' } = request;
  const [path = '', query = ''] = (request.url ?? '').split('?');
  const body = Buffer.concat(chunks);
  if (query !== '') api.queries.push(`${method} ${query}`);
  api.calls.push(`${method} ${path}`);
  if (['POST', 'PATCH'].includes(method)) api.bodies.push(body.toString());
  if (path === api.silentPath) return undefined;
  const exchange = { method, path, query, body, response };
  if (api.refusal) return refuse(response, api.refusal);
  if (path.includes('/execs')) return serveJobs(request, exchange);
  return serveObjects(exchange);
}

const answer = (response: ServerResponse, status: number, body: object) =>
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

function refuse(response: ServerResponse, { status, code, detail = 'refused' }: Refusal): ServerResponse {
  return answer(response, status, { code, detail });
}

function serveJobs(request: IncomingMessage, { method, path, query, body, response }: Exchange): unknown {
  if (method === 'GET' && path.includes('/execs/') && api.refusals > 0) {
    api.refusals -= 1;
    if (api.retryAfter !== undefined) response.setHeader('retry-after', api.retryAfter);
    return refuse(response, { status: 503, code: 'host_unavailable', detail: 'The host does not answer.' });
  }
  if (path.endsWith('/output')) {
    const bytes = query.includes('stream=stdout') ? api.stdout : api.stderr;
    const page = pageOf(bytes, Number(/offset=(\d+)/.exec(query)?.[1]), bytes.length);
    if (request.headers.accept !== 'text/event-stream') return answer(response, 200, page);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(`id: ${page.next_offset}\ndata: ${JSON.stringify(page)}\n\n`);
    return page.eof ? response.end() : api.outputs.push(response);
  }
  if (path.endsWith('/stdin')) {
    if (api.stdinRefusal) return refuse(response, api.stdinRefusal);
    const from = Number(/offset=(\d+)/.exec(query)?.[1]);
    api.stdin = Buffer.concat([api.stdin.subarray(0, from), body]);
    api.isStdinClosed ||= query.includes('close=true');
    return answer(response, 200, { next_offset: api.stdin.length, closed: api.isStdinClosed });
  }
  if (!path.endsWith('/execs')) return answer(response, 200, job());
  if (method === 'GET') return answer(response, 200, { execs: [job(), ...api.others] });
  const { exec_id, stdin = '', stdin_open = false } = JSON.parse(body.toString());
  api.stdin = Buffer.from(stdin, 'base64');
  api.isStdinClosed = !stdin_open;
  const output = {
    stdout: pageOf(api.stdout, 0, api.firstPageBytes),
    stderr: pageOf(api.stderr, 0, api.firstPageBytes),
  };
  return answer(response, 201, { ...job(exec_id), output });
}

function serveObjects({ method, path, query, response }: Exchange): unknown {
  const isRead = method === 'GET';
  if (path.endsWith('/activity')) {
    const size = Number(/page_size=(\d+)/.exec(query)?.[1] ?? 50);
    const cursor = Number(/cursor=after\+(\d+)/.exec(query)?.[1] ?? 0);
    const metadata = { job_id: JOB };
    const entry = { created_at: 't', action: 'exec', actor: 'user', machine_id: MACHINE, metadata };
    return answer(response, 200, {
      activity: [...api.newActivity, ...Array(size).fill(entry)].slice(0, size),
      next_cursor: `after ${cursor + size}`,
    });
  }
  if (path.endsWith('/restore')) return answer(response, 200, machine());
  if (path === '/v1/images') {
    const image = { stack: 'base', architecture: 'x86_64', min_rootfs_gb: 2, digest: 'sha256:0', default: true };
    return answer(response, 200, { images: [{ ...image, description: 'a base' }] });
  }
  const [, kind] = /\/(volumes|snapshots)(?:\/|$)/.exec(path) ?? [];
  if (kind !== undefined) {
    if (method === 'DELETE') return response.writeHead(204).end();
    const found = kind === 'volumes' ? volume() : snapshot();
    const isCollection = path.endsWith(kind);
    if (isCollection && isRead) return answer(response, 200, { [kind]: [found, ...api.others] });
    return answer(response, isCollection ? 201 : 200, found);
  }
  if (path === '/v1/machines') {
    if (isRead) return answer(response, 200, { machines: [machine(), ...api.others] });
    return setTimeout(() => answer(response, 201, machine()), api.createDelayMs);
  }
  if (path.endsWith(ABSENT))
    return answer(response, 404, { code: 'not_found', detail: 'no such machine', ...api.fields });
  return answer(response, 200, machine());
}

/** The environment in which the CLI uses the stand-in. */
export function environment(): NodeJS.ProcessEnv {
  const home = `${tmpdir()}/no-such-home`;
  return { ...process.env, SANDBAR_HOME: home, SANDBAR_BASE_URL: api.baseUrl, SANDBAR_API_KEY: 'k' };
}

export function start(args: string[], env: Record<string, string> = {}): ChildProcessWithoutNullStreams {
  return spawn(process.execPath, [CLI, ...args], { env: { ...environment(), ...env } });
}

export type Ran = { code: number | null; stdout: Buffer; stderr: string };

export async function sandbar(
  args: string[],
  options: { env?: Record<string, string>; input?: string } = {},
): Promise<Ran> {
  const child = start(args, options.env);
  const out: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (chunk) => out.push(chunk));
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  // Ignore the error when the command ends without reading its input.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  const [code] = await once(child, 'close');
  return { code, stdout: Buffer.concat(out), stderr };
}

/** Runs a command line, which is split at its spaces, and returns its standard output as text. */
export async function printed(line: string): Promise<string> {
  return (await sandbar(line.split(' '))).stdout.toString();
}

/** Ends the job, and with it the output streams that are open. */
export function endJob(exitCode: number): void {
  api.job = { status: 'exited', exit_code: exitCode, signal: null };
  const page = { offset: 0, data: '', next_offset: 0, total_bytes: 0, eof: true };
  for (const response of api.outputs.splice(0)) response.end(`id: 0\ndata: ${JSON.stringify(page)}\n\n`);
}

export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, 'waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
