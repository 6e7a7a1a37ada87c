// Tests the CLI as a user runs it, against a small HTTP server that stands in for the API.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { after, before, beforeEach, describe, it } from 'node:test';

const CLI = new URL('../bin/sandbar.mjs', import.meta.url).pathname;

type Job = { status: string; exit_code: number | null; signal: string | null };

let server: Server;
let baseUrl: string;
let calls: string[];
let bodies: string[];
let queries: string[];
let job: Job;
let stdout: Buffer;
/** How many bytes of stdout the answer to a start contains. The CLI reads the rest from the output stream. */
let firstPageBytes: number;
/** What the job has accepted as its standard input, and whether that was closed. */
let stdin: Buffer;
let isStdinClosed: boolean;
/** The answer of the server to a write to the job's standard input, instead of accepting it. */
let stdinRefusal: { status: number; code: string } | undefined;
/** The output streams that are open, to be ended with the job. */
let outputs: ServerResponse[];
/** How many requests for the job or its output the server answers with 503 before it serves them. */
let refusals: number;
let retryAfter: string | undefined;
let createDelayMs: number;
/** Fields that a test adds to the machine, volume, snapshot and error of the server. */
let fields: Record<string, unknown>;

before(async () => {
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const [path = '', query = ''] = (request.url ?? '').split('?');
    if (query !== '') queries.push(`${request.method} ${query}`);
    calls.push(`${request.method} ${path}`);
    if (['POST', 'PATCH'].includes(request.method ?? '')) bodies.push(Buffer.concat(chunks).toString());
    const answer = (status: number, body: object) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    const machine = {
      id: 'm1',
      name: '',
      state: 'running',
      vcpus: 1,
      memory_mb: 256,
      rootfs_size_gb: 2,
      private_ip: '10.0.0.2',
      created_at: 't',
      error: null,
      root_volume_id: 'v2',
      operation: null,
      expires_at: null,
      on_expiry: 'destroy',
      ...fields,
    };
    const pageOf = (bytes: Buffer, from: number, to: number) => {
      const data = bytes.subarray(from, to);
      const next = from + data.length;
      return {
        offset: from,
        data: data.toString('base64'),
        next_offset: next,
        total_bytes: bytes.length,
        eof: job.status !== 'running' && next === bytes.length,
      };
    };
    if (request.method === 'GET' && path.includes('/execs/') && refusals > 0) {
      refusals -= 1;
      if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
      return answer(503, { code: 'host_unavailable', detail: 'The host does not answer.' });
    }
    if (path.endsWith('/output')) {
      const isStdout = query.includes('stream=stdout');
      const page = pageOf(isStdout ? stdout : Buffer.alloc(0), Number(/offset=(\d+)/.exec(query)?.[1]), stdout.length);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`id: ${page.next_offset}\ndata: ${JSON.stringify(page)}\n\n`);
      if (page.eof) response.end();
      else outputs.push(response);
      return;
    }
    if (path.endsWith('/stdin')) {
      if (stdinRefusal) return answer(stdinRefusal.status, { code: stdinRefusal.code, detail: 'refused' });
      const body = Buffer.concat(chunks);
      const from = Number(/offset=(\d+)/.exec(query)?.[1]);
      stdin = Buffer.concat([stdin.subarray(0, from), body]);
      isStdinClosed ||= query.includes('close=true');
      return answer(200, { next_offset: stdin.length, closed: isStdinClosed });
    }
    if (path.endsWith('/execs') && request.method === 'POST') {
      const { exec_id, stdin: first = '', stdin_open = false } = JSON.parse(bodies.at(-1) ?? '');
      stdin = Buffer.from(first, 'base64');
      isStdinClosed = !stdin_open;
      const output = { stdout: pageOf(stdout, 0, firstPageBytes), stderr: pageOf(Buffer.alloc(0), 0, 0) };
      return answer(201, { id: exec_id, truncated: false, ...job, output });
    }
    if (path.startsWith('/v1/volumes') && request.method !== 'DELETE') {
      const volume = {
        id: 'v1',
        name: '',
        kind: 'root',
        size_gb: 10,
        state: 'error',
        machine_id: null,
        mount_path: null,
        error: 'The host has lost it.',
        created_at: 't',
        ...fields,
      };
      if (path === '/v1/volumes' && request.method === 'GET') return answer(200, { volumes: [volume] });
      return answer(path === '/v1/volumes' ? 201 : 200, volume);
    }
    if (path.startsWith('/v1/volumes/') && request.method === 'DELETE') return response.writeHead(204).end();
    if (path.endsWith('/restore')) return answer(200, machine);
    if (path.includes('/snapshots') && request.method !== 'DELETE') {
      const snapshot = {
        id: 's1',
        machine_id: 'm1',
        name: 'before',
        kind: 'disk',
        size_gb: 10,
        stored_bytes: 3_000_000,
        state: 'error',
        error: 'The host has lost it.',
        created_at: 't',
        ...fields,
      };
      if (path.endsWith('/snapshots') && request.method === 'GET') return answer(200, { snapshots: [snapshot] });
      return answer(path.endsWith('/snapshots') ? 201 : 200, snapshot);
    }
    if (path.startsWith('/v1/snapshots/')) return response.writeHead(204).end();
    if (path === '/v1/machines' && request.method === 'GET') return answer(200, { machines: [machine] });
    if (path.endsWith('/activity')) {
      const size = Number(/page_size=(\d+)/.exec(query)?.[1] ?? 50);
      const cursor = Number(/cursor=after\+(\d+)/.exec(query)?.[1] ?? 0);
      const entry = { created_at: 't', action: 'exec', actor: 'user', machine_id: 'm1', metadata: { job_id: 'e1' } };
      return answer(200, { activity: Array(size).fill(entry), next_cursor: `after ${cursor + size}` });
    }
    if (path === '/v1/images') {
      const image = { stack: 'base', architecture: 'x86_64', min_rootfs_gb: 2, digest: 'sha256:0', default: true };
      return answer(200, { images: [{ ...image, description: 'a base' }] });
    }
    if (path === '/v1/machines') {
      setTimeout(() => answer(201, machine), createDelayMs);
      return;
    }
    if (path.includes('/execs')) return answer(200, { id: 'e1', truncated: false, ...job });
    if (path.endsWith('/absent')) return answer(404, { code: 'not_found', detail: 'no such machine', ...fields });
    answer(200, machine);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  baseUrl = `http://127.0.0.1:${address.port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  calls = [];
  bodies = [];
  queries = [];
  job = { status: 'exited', exit_code: 0, signal: null };
  stdout = Buffer.alloc(0);
  firstPageBytes = Number.POSITIVE_INFINITY;
  stdin = Buffer.alloc(0);
  isStdinClosed = false;
  stdinRefusal = undefined;
  outputs = [];
  refusals = 0;
  retryAfter = undefined;
  createDelayMs = 0;
  fields = {};
});

function start(args: string[], env: Record<string, string> = {}) {
  return spawn(process.execPath, [CLI, ...args], {
    env: {
      ...process.env,
      SANDBAR_HOME: `${tmpdir()}/no-such-home`,
      SANDBAR_BASE_URL: baseUrl,
      SANDBAR_API_KEY: 'k',
      ...env,
    },
  });
}

async function sandbar(args: string[], options: { env?: Record<string, string>; input?: string } = {}) {
  const child = start(args, options.env);
  const out: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (chunk) => out.push(chunk));
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  // A command that does not read its input may have ended already.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  const [code] = await once(child, 'close');
  return { code, stdout: Buffer.concat(out), stderr };
}

/** Ends the job, and with it the output streams that are open. */
function endJob(exitCode: number): void {
  job = { status: 'exited', exit_code: exitCode, signal: null };
  const page = { offset: 0, data: '', next_offset: 0, total_bytes: 0, eof: true };
  for (const response of outputs.splice(0)) response.end(`id: 0\ndata: ${JSON.stringify(page)}\n\n`);
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, 'waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('sandbar run', () => {
  it('prints exact bytes, ends with the exit code of the command, and destroys the machine', async () => {
    stdout = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
    job.exit_code = 7;
    const result = await sandbar(['run', '--memory', '256', '--env', 'A=b=c', '--', 'cmd', '-x', '--', 'y']);
    assert.equal(result.code, 7);
    assert.deepEqual(result.stdout, stdout);
    assert.equal(calls.at(-1), 'DELETE /v1/machines/m1');
    const { exec_id, ...command } = JSON.parse(bodies[1] ?? '');
    assert.match(exec_id, /^[0-9a-f-]{36}$/);
    assert.deepEqual(command, { argv: ['cmd', '-x', '--', 'y'], env: { A: 'b=c' } });
    assert.deepEqual(JSON.parse(bodies[0] ?? ''), { memory_mb: 256 });
  });

  it('a short command is one request between the create and the destroy', async () => {
    stdout = Buffer.from('short');
    assert.equal((await sandbar(['run', '--', 'x'])).stdout.toString(), 'short');
    assert.deepEqual(calls, ['POST /v1/machines', 'POST /v1/machines/m1/execs', 'DELETE /v1/machines/m1']);
    assert.ok(queries.some((query) => /^POST wait_ms=\d+$/.test(query)));
  });

  it('output beyond the first page is read to its end, every byte once', async () => {
    stdout = Buffer.from('0123456789');
    firstPageBytes = 4;
    assert.equal((await sandbar(['run', '--', 'x'])).stdout.toString(), '0123456789');
  });

  it('a service that is unavailable for a while loses neither the result nor the exit code', async () => {
    stdout = Buffer.from('result');
    firstPageBytes = 0;
    job.exit_code = 5;
    refusals = 2;
    const { code, stdout: printed } = await sandbar(['run', '--', 'x']);
    assert.deepEqual([code, printed.toString(), refusals], [5, 'result', 0]);
    assert.equal(calls.at(-1), 'DELETE /v1/machines/m1');
  });

  it('when the service stays unavailable, the machine is kept and named', async () => {
    firstPageBytes = 0;
    refusals = 1000;
    retryAfter = '3600';
    stdout = Buffer.from('result');
    const { code, stderr } = await sandbar(['run', '--', 'x']);
    assert.equal(code, 1);
    assert.match(stderr, /machine m1 is kept.*sandbar machines destroy m1\nsandbar: host_unavailable: /);
    assert.ok(!calls.some((call) => call.startsWith('DELETE')), calls.join());
  });

  it('everything after -- belongs to the command, --help as well', async () => {
    await sandbar(['exec', 'm1', '--', 'ls', '--help']);
    await sandbar(['run', '--', 'ls', '-h', '--version']);
    assert.deepEqual(JSON.parse(bodies[0] ?? '').argv, ['ls', '--help']);
    assert.deepEqual(JSON.parse(bodies[2] ?? '').argv, ['ls', '-h', '--version']);
  });

  it('options of the machine and of the job are sent', async () => {
    const machine = '--name n --metadata a=1 --metadata b=x=y --expires 1h --on-expiry stop --vcpus 2 --stack python';
    const job = '--job-name label --merge-output --user u --cwd /w --timeout 9 --env INHERITED';
    await sandbar(['run', ...machine.split(' '), ...job.split(' '), '--', 'x'], { env: { INHERITED: 'yes' } });
    assert.deepEqual(JSON.parse(bodies[0] ?? ''), {
      name: 'n',
      metadata: { a: '1', b: 'x=y' },
      expires_in_sec: 3600,
      on_expiry: 'stop',
      vcpus: 2,
      stack: 'python',
    });
    const { exec_id: _, ...sent } = JSON.parse(bodies[1] ?? '');
    const rest = { user: 'u', cwd: '/w', timeout_sec: 9, env: { INHERITED: 'yes' } };
    assert.deepEqual(sent, { argv: ['x'], name: 'label', merge_output: true, ...rest });
    await sandbar(['exec', 'm1', '--name', 'other', '--', 'x']);
    assert.equal(JSON.parse(bodies[2] ?? '').name, 'other');
  });

  it('a signal is 128 and its number, a time-out 124', async () => {
    job = { status: 'exited', exit_code: null, signal: 'SIGTERM' };
    assert.equal((await sandbar(['run', '--', 'x'])).code, 143);
    job = { status: 'timed_out', exit_code: null, signal: 'SIGTERM' };
    assert.equal((await sandbar(['run', '--', 'x'])).code, 124);
  });

  it('--keep keeps the machine and prints its id', async () => {
    const { stderr } = await sandbar(['run', '--keep', '--', 'x']);
    assert.match(stderr, /m1/);
    assert.ok(!calls.some((call) => call.startsWith('DELETE')));
  });

  it('-i passes standard input, of any length', async () => {
    for (const input of ['hello', '', 'x'.repeat(3_000_000)]) {
      job = { status: 'running', exit_code: null, signal: null };
      const ran = sandbar(['run', '-i', '--', 'cat'], { input });
      await until(() => isStdinClosed && outputs.length === 2);
      assert.equal(stdin.toString(), input);
      endJob(0);
      assert.equal((await ran).code, 0);
      isStdinClosed = false;
    }
  });

  it('-i sends what is typed at once, and its end when it ends', async () => {
    job = { status: 'running', exit_code: null, signal: null };
    const child = start(['exec', '-i', 'm1', '--', 'cat']);
    await until(() => calls.some((call) => call.endsWith('/execs')));
    for (const typed of ['one\n', 'one\ntwo\n', 'one\ntwo\nthree']) {
      child.stdin.write(typed.slice(stdin.length));
      await until(() => stdin.toString() === typed);
      assert.ok(!isStdinClosed);
    }
    child.stdin.end();
    await until(() => isStdinClosed && outputs.length === 2);
    endJob(3);
    assert.deepEqual(await once(child, 'close'), [3, null]);
  });

  it('-i ends with the command, although its input goes on', async () => {
    job = { status: 'running', exit_code: null, signal: null };
    const child = start(['exec', '-i', 'm1', '--', 'cat']);
    await until(() => outputs.length === 2);
    endJob(4);
    assert.deepEqual(await once(child, 'close'), [4, null]);
  });

  it('-i goes on without input when the command has closed it, and fails when the service is away', async () => {
    job = { status: 'running', exit_code: null, signal: null };
    for (const [refusal, code] of [
      [{ status: 409, code: 'conflict' }, 5],
      [{ status: 403, code: 'forbidden' }, 1],
    ] as const) {
      stdinRefusal = refusal;
      const child = start(['exec', '-i', 'm1', '--', 'cat']);
      await until(() => outputs.length === 2);
      child.stdin.write('x');
      await until(() => calls.some((call) => call.startsWith('PUT')));
      if (code === 5) endJob(5);
      assert.deepEqual(await once(child, 'close'), [code, null]);
      job = { status: 'running', exit_code: null, signal: null };
      calls = [];
      outputs = [];
    }
  });

  it('-i leaves Ctrl-C as it is: it cancels the job', async () => {
    job = { status: 'running', exit_code: null, signal: null };
    const child = start(['exec', '-i', 'm1', '--', 'cat']);
    await until(() => outputs.length === 2);
    child.kill('SIGINT');
    assert.deepEqual(await once(child, 'close'), [130, null]);
    assert.ok(calls.some((call) => call.endsWith('/cancel')));
  });

  it('Ctrl-C cancels the job, destroys the machine and ends with 130', async () => {
    job = { status: 'running', exit_code: null, signal: null };
    const child = start(['run', '--', 'sleep', '1000']);
    await until(() => calls.some((call) => call.endsWith('/output')));
    child.kill('SIGINT');
    const [code] = await once(child, 'close');
    assert.equal(code, 130);
    const { exec_id } = JSON.parse(bodies[1] ?? '');
    assert.deepEqual(calls.slice(-2), [`POST /v1/machines/m1/execs/${exec_id}/cancel`, 'DELETE /v1/machines/m1']);
  });

  it('Ctrl-C while the machine is being created destroys it', async () => {
    createDelayMs = 300;
    const child = start(['run', '--', 'x']);
    await until(() => calls.includes('POST /v1/machines'));
    child.kill('SIGTERM');
    const [code] = await once(child, 'close');
    assert.equal(code, 143);
    assert.equal(calls.at(-1), 'DELETE /v1/machines/m1');
  });
});

describe('sandbar', () => {
  it('machines list is a table, with or without "list"', async () => {
    for (const args of [['machines', 'list'], ['machines']]) {
      assert.match((await sandbar(args)).stdout.toString(), /^ID\s+NAME.*\nm1\s+-\s+running/);
    }
  });

  it('machines shows the operation under way and the expiry', async () => {
    fields = {
      operation: { kind: 'stop', since: 's', attempts: 2, last_error: 'The host is away.' },
      expires_at: 'e',
      on_expiry: 'stop',
    };
    for (const args of [['machines'], ['machines', 'show', 'm1']]) {
      const { stdout } = await sandbar(args);
      assert.match(
        stdout.toString(),
        /^ID +NAME +STATE +OPERATION .* EXPIRES\nm1 +- +running +stop +.* t +e \(stop\)\n/,
      );
      assert.match(stdout.toString(), /\nm1: stop is under way since s, attempt 2: The host is away\.\n$/);
    }
  });

  it('machines create and update send the options', async () => {
    const json = async (line: string) =>
      JSON.parse((await sandbar(['machines', ...line.split(' '), '--json'])).stdout.toString());
    assert.equal((await json('create --memory 256 --env A=b --expires 2d')).id, 'm1');
    assert.equal((await json('update m1 --name n --metadata k=v --expires 90s --on-expiry destroy')).id, 'm1');
    assert.equal((await json('update m1 --expires never')).id, 'm1');
    assert.deepEqual(calls, ['POST /v1/machines', 'PATCH /v1/machines/m1', 'PATCH /v1/machines/m1']);
    assert.deepEqual(
      bodies.map((body) => JSON.parse(body)),
      [
        { memory_mb: 256, env: { A: 'b' }, expires_in_sec: 172_800 },
        { name: 'n', metadata: { k: 'v' }, expires_in_sec: 90, on_expiry: 'destroy' },
        { expires_in_sec: null },
      ],
    );
  });

  it('machines: a wrong command line is exit code 2 and sends no request', async () => {
    const wrong = ['update', 'update m1', 'update m1 --expires 1w', 'update m1 --expires 10', 'create m1', 'stop'];
    for (const line of [...wrong, 'update m1 --on-expiry sleep', 'update m1 --metadata k', 'create --env ,']) {
      assert.equal((await sandbar(['machines', ...line.split(' ')])).code, 2, line);
    }
    assert.deepEqual(calls, []);
  });

  it('control characters from the API are printed as escapes', async () => {
    const name = 'a\x1b[2Jb\nc\x7f\x9b\u202e';
    const shown = 'a\\x1b[2Jb\\x0ac\\x7f\\x9b\\u202e';
    fields = { name, error: name, detail: name };
    for (const args of [['machines'], ['volumes'], ['snapshots'], ['machines', 'get', 'm1']]) {
      const { stdout } = await sandbar(args);
      assert.equal(stdout.toString().split(shown).length, 3, args.join(' '));
      assert.doesNotMatch(stdout.toString(), /(?!\n)[\p{Cc}\u202e]/u);
    }
    const { stderr } = await sandbar(['machines', 'get', 'absent']);
    assert.equal(stderr, `sandbar: not_found: ${shown}\n`);
    const { stdout } = await sandbar(['machines', '--json']);
    assert.equal(JSON.parse(stdout.toString()).machines[0].name, name);
  });

  it('--json of a list prints the answer of the API unchanged', async () => {
    for (const [name, path] of [
      ['machines', '/v1/machines'],
      ['volumes', '/v1/volumes'],
      ['snapshots', '/v1/snapshots'],
      ['images', '/v1/images'],
      ['activity', '/v1/activity'],
    ] as const) {
      const answer = await (await fetch(baseUrl + path)).json();
      const { stdout } = await sandbar([name, '--json']);
      assert.deepEqual(JSON.parse(stdout.toString()), answer);
    }
  });

  it('activity reads as many pages as --limit needs, and --json has the cursor of the next', async () => {
    const { stdout } = await sandbar(['activity', 'm1', '--limit', '201', '--json']);
    const { activity, next_cursor } = JSON.parse(stdout.toString());
    assert.deepEqual([activity.length, next_cursor], [201, 'after 201']);
    assert.deepEqual(calls, ['GET /v1/machines/m1/activity', 'GET /v1/machines/m1/activity']);
    assert.match(
      (await sandbar(['activity', '--limit', '1'])).stdout.toString(),
      /^TIME.*\nt +exec +user +m1 +job_id=e1\n$/,
    );
  });

  it('volumes list prints a table and the errors; delete prints each id', async () => {
    const listed = (await sandbar(['volumes'])).stdout.toString();
    assert.match(listed, /^ID\s+NAME.*\nv1\s+-\s+root\s+10\s+error.*\nv1: The host has lost it\.\n$/);
    const { code, stdout } = await sandbar(['volumes', 'delete', 'v1', 'v2']);
    assert.deepEqual([code, stdout.toString()], [0, 'v1: deleted\nv2: deleted\n']);
    assert.deepEqual(calls.slice(-2), ['DELETE /v1/volumes/v1', 'DELETE /v1/volumes/v2']);
  });

  it('volumes create, attach and detach send the options and print the answer', async () => {
    const json = async (...args: string[]) =>
      JSON.parse((await sandbar(['volumes', ...args, '--json'])).stdout.toString());
    assert.equal((await json('create', '--size', '5', '--name', 'x')).id, 'v1');
    assert.equal((await json('create', '--size', '6')).id, 'v1');
    assert.equal((await json('attach', 'v1', 'm1', '--path', '/data')).id, 'v1');
    assert.equal((await json('attach', 'v1', 'm1')).id, 'v1');
    assert.equal((await json('detach', 'v1')).id, 'v1');
    assert.deepEqual(
      calls.map((call, index) => [call, bodies[index]]),
      [
        ['POST /v1/volumes', '{"size_gb":5,"name":"x"}'],
        ['POST /v1/volumes', '{"size_gb":6}'],
        ['POST /v1/volumes/v1/attach', '{"machine_id":"m1","mount_path":"/data"}'],
        ['POST /v1/volumes/v1/attach', '{"machine_id":"m1"}'],
        ['POST /v1/volumes/v1/detach', ''],
      ],
    );
    assert.match((await sandbar(['volumes', 'detach', 'v1', 'v2'])).stdout.toString(), /^ID .*\nv1 .*\nv1 /);
  });

  it('volumes: a wrong command line is exit code 2 and sends no request', async () => {
    const wrong = ['delete', 'detach', 'get', 'attach v1', 'attach v1 m1 m2', 'list v1', 'create', 'create --size big'];
    wrong.push(
      'create --size 5 v1',
      'list --size 5',
      'attach v1 m1 --name x',
      'create --size 5 --path /x',
      'format v1',
    );
    for (const line of wrong) assert.equal((await sandbar(['volumes', ...line.split(' ')])).code, 2, line);
    assert.deepEqual(calls, []);
  });

  it('snapshots list prints a table and the errors', async () => {
    const listed = (await sandbar(['snapshots'])).stdout.toString();
    assert.match(listed, /^ID\s+NAME.*\ns1\s+before\s+disk\s+10\s+3\s+error\s+m1.*\ns1: The host has lost it\.\n$/);
    assert.match((await sandbar(['snapshots', 'list', 'm1'])).stdout.toString(), /\ns1 /);
    assert.deepEqual(calls, ['GET /v1/snapshots', 'GET /v1/machines/m1/snapshots']);
  });

  it('snapshots create, restore and delete send the options and print the result', async () => {
    const created = await sandbar(['snapshots', 'create', 'm1', '--name', 'x', '--memory', '--json']);
    assert.equal(JSON.parse(created.stdout.toString()).id, 's1');
    assert.match((await sandbar(['snapshots', 'create', 'm1'])).stdout.toString(), /^ID .*\ns1 /);
    assert.equal((await sandbar(['snapshots', 'restore', 's1'])).stdout.toString(), 'machine m1: restored, running\n');
    assert.equal(JSON.parse((await sandbar(['snapshots', 'get', 's1', '--json'])).stdout.toString()).id, 's1');
    assert.equal((await sandbar(['snapshots', 'delete', 's1', 's2'])).stdout.toString(), 's1: deleted\ns2: deleted\n');
    assert.deepEqual(calls, [
      'POST /v1/machines/m1/snapshots',
      'POST /v1/machines/m1/snapshots',
      'POST /v1/snapshots/s1/restore',
      'GET /v1/snapshots/s1',
      'DELETE /v1/snapshots/s1',
      'DELETE /v1/snapshots/s2',
    ]);
    assert.deepEqual(bodies, ['{"name":"x","memory":true}', '{}', '']);
  });

  it('snapshots: a wrong command line is exit code 2 and sends no request', async () => {
    const wrong = [
      'create',
      'create m1 m2',
      'restore',
      'restore s1 s2',
      'restore s1 --memory',
      'get',
      'delete',
      'list a b',
    ];
    for (const line of [...wrong, 'list --name x', 'freeze m1']) {
      assert.equal((await sandbar(['snapshots', ...line.split(' ')])).code, 2, line);
    }
    assert.equal((await sandbar(['machines', 'stop', 'm1', '--delete-snapshots'])).code, 2);
    assert.deepEqual(calls, []);
  });

  it('run creates its machine from a snapshot or a kept disk; destroy can delete snapshots', async () => {
    await sandbar(['run', '--snapshot', 's1', '--', 'true']);
    assert.ok(queries.includes('DELETE preserve_storage=false'), queries.join());
    const kept = await sandbar(['run', '--root-volume', 'v1', '--', 'true']);
    assert.ok(queries.includes('DELETE preserve_storage=true'), queries.join());
    assert.match(kept.stderr, /the disk is kept as volume v2/);
    assert.deepEqual(
      bodies.filter((body) => !body.includes('argv')),
      ['{"snapshot_id":"s1"}', '{"root_volume_id":"v1"}'],
    );
    await sandbar(['machines', 'destroy', 'm1', '--delete-snapshots']);
    assert.equal(calls.at(-1), 'DELETE /v1/machines/m1');
  });

  it('an error is one line with its code, exit code 1', async () => {
    const { code, stderr } = await sandbar(['machines', 'get', 'absent']);
    assert.deepEqual([code, stderr], [1, 'sandbar: not_found: no such machine\n']);
  });

  it('when the service does not run, the error names npm start', async () => {
    const { code, stderr } = await sandbar(['images'], { env: { SANDBAR_BASE_URL: 'http://127.0.0.1:1' } });
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar: .*127\.0\.0\.1:1.*npm start.*\n$/);
  });

  it('every command has its own help', async () => {
    const { stdout } = await sandbar(['--help']);
    const [, listed = ''] = stdout.toString().split('Commands:\n');
    const names = [...listed.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = '']) => name);
    assert(names.length >= 15, names.join());
    for (const name of names.filter((known) => known !== 'help')) {
      for (const args of [
        [name, '--help'],
        ['help', name],
      ]) {
        const { code, stdout: help } = await sandbar(args);
        assert.equal(code, 0, name);
        assert.match(help.toString(), new RegExp(`^Usage: sandbar ${name} `));
      }
    }
    assert.match((await sandbar(['machines', 'update', '--help'])).stdout.toString(), /--on-expiry/);
    assert.deepEqual(calls, []);
  });

  it('a misspelt command or option is an error with a suggestion', async () => {
    for (const [line, hint] of [
      ['machnes', /\(Did you mean machines\?\); sandbar --help tells more\n$/],
      ['machines dstroy m1', /\(Did you mean destroy\?\); sandbar machines --help tells more\n$/],
      ['machines destroy m1 --keep-dsk', /\(Did you mean --keep-disk\?\); sandbar machines destroy --help/],
    ] as const) {
      const { code, stderr } = await sandbar(line.split(' '));
      assert.equal(code, 2);
      assert.match(stderr, hint);
    }
  });

  it('an empty SANDBAR_API_KEY is refused', async () => {
    const { code, stderr } = await sandbar(['machines'], { env: { SANDBAR_API_KEY: '' } });
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar: SANDBAR_API_KEY is set, but empty.*\n$/);
    assert.deepEqual(calls, []);
  });

  it('help and version work without a service; a wrong option is one line and exit code 2', async () => {
    assert.match((await sandbar(['--help'])).stdout.toString(), /Usage: sandbar/);
    assert.match((await sandbar(['run', '--help'])).stdout.toString(), /--vcpus/);
    assert.match((await sandbar(['--version'])).stdout.toString(), /^\d+\.\d+\.\d+\n$/);
    const { code, stderr } = await sandbar(['run', '--nope', '--', 'x']);
    assert.equal(code, 2);
    assert.match(stderr, /^sandbar: .*--nope.*\n$/);
    assert.equal((await sandbar(['run', '--vcpus', 'two', '--', 'x'])).code, 2);
    assert.equal((await sandbar(['nope'])).code, 2);
  });
});
