// Tests every tool with the official MCP client and a fake of the service.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { ExecCreate } from '@sandbar/contract/exec.ts';
import { type Connection, connectTo, textOf } from './testing/connect.ts';
import { type FakeService, refused, startFakeService } from './testing/fake-service.ts';
import { entryOf, JOB_ID, jobOf, MACHINE_ID, machineOf, pageOf, SNAPSHOT_ID, snapshotOf } from './testing/records.ts';

const MACHINE = `/v1/machines/${MACHINE_ID}`;
const machine_id = MACHINE_ID;
const job_id = JOB_ID;

let service: FakeService;
let connection: Connection;
before(async () => {
  service = await startFakeService();
  connection = await connectTo(service.baseUrl);
});
after(async () => {
  await connection.close();
  service.close();
});
afterEach(() => service.reset());

/** Calls a tool. Fails when the result is an error. */
async function use(name: string, args: Record<string, unknown>) {
  const result = await connection.agent.callTool({ name, arguments: args });
  assert.equal(result.isError ?? false, false, textOf(result));
  return { data: result.structuredContent as Record<string, unknown>, text: textOf(result) };
}

const sent = () => service.requests.map(({ method, path }) => `${method} ${path}`);
const bodyOf = (at: number) => JSON.parse(service.requests[at]?.body ?? '');

describe('tools/list', () => {
  it('names every tool with schemas and annotations, in less than 20 KiB', async (t) => {
    const { tools } = await connection.agent.listTools();
    assert.deepEqual(
      tools.map(({ name }) => name).sort(),
      [
        ...['exec', 'exec_cancel', 'exec_output', 'exec_start', 'file_list', 'file_read', 'file_write'],
        ...['machine_create', 'machine_delete', 'machine_get', 'machine_list', 'machine_run', 'machine_start'],
        ...['machine_stop', 'port_url', 'snapshot_create', 'snapshot_list', 'snapshot_restore'],
      ].sort(),
    );
    for (const { name, inputSchema, outputSchema, annotations, description } of tools) {
      assert.equal(inputSchema.additionalProperties, false, `${name} takes unknown arguments`);
      assert.equal(outputSchema?.type, 'object', name);
      assert.ok(description && description.length < 400, name);
      assert.equal(typeof annotations?.readOnlyHint, 'boolean', name);
    }
    const destructive = tools.filter(({ annotations }) => annotations?.destructiveHint).map(({ name }) => name);
    assert.deepEqual(destructive.sort(), [
      ...['exec', 'exec_cancel', 'exec_start', 'file_write', 'machine_delete', 'snapshot_restore'],
    ]);
    const bytes = Buffer.byteLength(JSON.stringify({ tools }));
    t.diagnostic(`tools/list has ${bytes} bytes`);
    assert.ok(bytes < 20 * 1024, `${bytes} bytes`);
  });
});

describe('machine tools', () => {
  it('machine_create sends the size, the image and the expiry', async () => {
    service.on('POST /v1/machines', () => ({ status: 201, body: machineOf({ expires_at: '2026-01-02T04:00:00Z' }) }));
    const wanted = { name: 'box', stack: 'python', vcpus: 2, memory_mb: 512, expires_in_sec: 600, env: { A: '1' } };
    const { data, text } = await use('machine_create', wanted);
    assert.deepEqual(bodyOf(0), { ...wanted, on_expiry: 'destroy' });
    assert.deepEqual([data.machine_id, data.state, data.vcpus], [MACHINE_ID, 'running', 2]);
    assert.match(text, /running, python, 2 vcpus, 512 MiB, 10 GiB disk, destroy at 2026-01-02T04/);
  });

  it('machine_list filters the machines, and shows at most 100', async () => {
    service.on('GET /v1/machines', () => ({ body: { machines: Array.from({ length: 103 }, () => machineOf()) } }));
    const { data, text } = await use('machine_list', { state: 'running', name: 'box' });
    assert.equal(service.requests[0]?.query.toString(), 'state=running&name=box');
    assert.equal((data.machines as unknown[]).length, 100);
    assert.equal(data.total, 103);
    assert.match(text, /… and 3 more$/);
  });

  it('machine_get, machine_start and machine_stop return the state', async () => {
    service.on(`GET ${MACHINE}`, () => ({ body: machineOf() }));
    service.on(`POST ${MACHINE}/start`, () => ({ body: machineOf() }));
    service.on(`POST ${MACHINE}/stop`, () => ({ body: machineOf({ state: 'stopped' }) }));
    assert.equal((await use('machine_get', { machine_id })).data.stack, 'python');
    assert.equal((await use('machine_start', { machine_id })).data.state, 'running');
    assert.equal((await use('machine_stop', { machine_id })).data.state, 'stopped');
  });

  it('machine_delete passes delete_snapshots, and succeeds when the machine is destroyed already', async () => {
    service.on(`DELETE ${MACHINE}`, () => ({ body: machineOf({ state: 'destroyed' }) }));
    assert.deepEqual((await use('machine_delete', { machine_id, delete_snapshots: true })).data, {
      machine_id,
      state: 'destroyed',
    });
    assert.equal(service.requests[0]?.query.get('delete_snapshots'), 'true');
    service.on(`DELETE ${MACHINE}`, () => refused(404, 'not_found', 'No such machine.'));
    service.on(`GET ${MACHINE}`, () => ({ body: machineOf({ state: 'destroyed' }) }));
    await use('machine_delete', { machine_id });
  });
});

describe('machine_run', () => {
  const expires_at = '2026-01-02T04:00:00Z';
  const serve = (stdout: string) => {
    service.on('POST /v1/machines', () => ({ status: 201, body: machineOf({ expires_at }) }));
    service.on(`DELETE ${MACHINE}`, () => ({ body: machineOf({ state: 'destroyed' }) }));
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: started({}, stdout) }));
  };

  it('creates a machine that expires, runs the command and destroys the machine', async () => {
    serve('42\n');
    const { data, text } = await use('machine_run', { command: 'echo 42', stack: 'python', env: { CI: '1' } });
    assert.deepEqual(sent(), ['POST /v1/machines', `POST ${MACHINE}/execs`, `DELETE ${MACHINE}`]);
    assert.deepEqual(bodyOf(0), { stack: 'python', expires_in_sec: 600, on_expiry: 'destroy' });
    assert.deepEqual([bodyOf(1).command, bodyOf(1).env, bodyOf(1).timeout_sec], ['echo 42', { CI: '1' }, 120]);
    assert.deepEqual([data.exit_code, data.stdout, data.machine_kept], [0, '42\n', false]);
    assert.equal(text, 'exit code 0\n42');
  });

  it('keeps the machine with `keep`, and says until when it runs', async () => {
    serve('');
    const { data, text } = await use('machine_run', { command: 'true', keep: true, timeout_sec: 3000 });
    assert.deepEqual(sent(), ['POST /v1/machines', `POST ${MACHINE}/execs`]);
    assert.equal(bodyOf(0).expires_in_sec, 3060);
    assert.deepEqual([data.machine_kept, data.machine_expires_at], [true, expires_at]);
    assert.match(text, new RegExp(`runs until ${expires_at}`));
  });

  it('destroys the machine when the command cannot be started', async () => {
    serve('');
    service.on(`POST ${MACHINE}/execs`, () => refused(403, 'forbidden', 'No.'));
    const result = await connection.agent.callTool({ name: 'machine_run', arguments: { command: 'x', keep: true } });
    assert.equal(result.isError, true);
    assert.equal(sent().at(-1), `DELETE ${MACHINE}`);
  });

  it('does not suggest reading output from a destroyed machine after a broken connection', async () => {
    serve('');
    service.on(`POST ${MACHINE}/execs`, () => ({ isBroken: true }));
    const call = { name: 'machine_run', arguments: { command: 'x', keep: true } };
    const gone = textOf(await connection.agent.callTool(call));
    assert.match(gone, /^Error connection_error: .*\nWhat to do: The command may have run. The machine is destroyed/);
    assert.doesNotMatch(gone, /exec_output/);
    service.on(`DELETE ${MACHINE}`, () => ({ isBroken: true }));
    const left = textOf(await connection.agent.callTool(call));
    assert.match(left, new RegExp(`${MACHINE_ID} could not be destroyed .* until ${expires_at}: .*machine_delete`));
    const result = await connection.agent.callTool({ name: 'exec', arguments: { machine_id, command: 'x' } });
    assert.match(textOf(result), /exec_output/);
  });

  it('does not say that the rest of long output can be read from a destroyed machine', async () => {
    serve('x'.repeat(500));
    const { text } = await use('machine_run', { command: 'x', max_bytes: 100 });
    assert.match(text, /cut at byte 100 of 500, and the machine is destroyed/);
  });
});

/** Makes the answer to a start that has waited for the end of the job. */
function started(job: Parameters<typeof jobOf>[0], stdout: string | Buffer, stderr = '') {
  const [out, err] = [Buffer.from(stdout), Buffer.from(stderr)];
  const output = { stdout: pageOf(out, 'stdout'), stderr: pageOf(err, 'stderr') };
  return { ...jobOf({ stdout_bytes: out.length, stderr_bytes: err.length, ...job }), output };
}

describe('exec', () => {
  it('runs a short command with one request', async () => {
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: started({ exit_code: 3 }, 'out\n', 'bad\n') }));
    const args = { machine_id, command: 'false', cwd: '/root', stdin: 'ä', timeout_sec: 9, user: 'root' };
    const { data, text } = await use('exec', args);
    const body: ExecCreate = bodyOf(0);
    assert.deepEqual([body.command, body.cwd, body.timeout_sec, body.user], ['false', '/root', 9, 'root']);
    assert.equal(Buffer.from(body.stdin ?? '', 'base64').toString(), 'ä');
    assert.equal(service.requests.length, 1);
    assert.deepEqual([data.exit_code, data.stdout, data.stderr, data.stdout_next_offset], [3, 'out\n', 'bad\n', null]);
    assert.equal(text, 'exit code 3\nout\n[stderr]\nbad');
  });

  it('cuts long output between two characters, and says how to read the rest', async () => {
    const stdout = `a${'é'.repeat(200)}`;
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: started({}, stdout) }));
    const { data, text } = await use('exec', { machine_id, command: 'x', max_bytes: 100 });
    assert.equal(data.stdout, `a${'é'.repeat(49)}`);
    assert.deepEqual([data.stdout_next_offset, data.stdout_bytes], [99, 401]);
    assert.match(text, /cut at byte 99 of 401. Read on with exec_output: machine_id 1+-.*stream stdout, offset 99/);
  });

  it('reads more than the first page when the caller wants more', async () => {
    const stdout = Buffer.from('z'.repeat(100_000));
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: started({}, stdout) }));
    service.on(`GET ${MACHINE}/execs/*/output`, ({ query }) => ({
      body: pageOf(stdout, 'stdout', Number(query.get('offset')), Number(query.get('limit'))),
    }));
    const { data } = await use('exec', { machine_id, command: 'x', max_bytes: 200_000 });
    assert.equal((data.stdout as string).length, 100_000);
    assert.equal(data.stdout_next_offset, null);
  });

  it('waits for a long command, and reports its progress', async () => {
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: jobOf({ status: 'running', exit_code: null }) }));
    service.on(`GET ${MACHINE}/execs/*`, () => ({
      body: jobOf({ status: 'timed_out', exit_code: null, signal: 'SIGKILL' }),
    }));
    const heard: string[] = [];
    const result = await connection.agent.callTool(
      { name: 'exec', arguments: { machine_id, command: 'sleep 9' } },
      { onprogress: ({ message }) => heard.push(message ?? '') },
    );
    const { exit_code, timed_out } = result.structuredContent as Record<string, unknown>;
    assert.deepEqual([exit_code, timed_out], [124, true]);
    assert.match(heard[0] ?? '', /^running for \d+ s, 0 bytes of stdout/);
  });

  it('cancels the job when the call is cancelled, even if the job starts only after that', async () => {
    const abort = new AbortController();
    let isStarted = false;
    const { promise: cancelled, resolve: cancel } = Promise.withResolvers<void>();
    service.on(`POST ${MACHINE}/execs`, async () => {
      abort.abort();
      await refusedOnce;
      isStarted = true;
      await cancelled;
      return { status: 201, body: jobOf({ status: 'canceled', exit_code: null, signal: 'SIGKILL' }) };
    });
    const { promise: refusedOnce, resolve: noteRefusal } = Promise.withResolvers<void>();
    service.on(`POST ${MACHINE}/execs/*/cancel`, () => {
      if (isStarted) cancel();
      else noteRefusal();
      return isStarted ? { body: jobOf({ status: 'canceled' }) } : refused(404, 'not_found', 'No such job.');
    });
    const options = { signal: abort.signal };
    await assert.rejects(connection.agent.callTool({ name: 'exec', arguments: { machine_id, command: 'x' } }, options));
    await cancelled;
    const { exec_id } = bodyOf(0);
    assert.equal(sent().at(-1), `POST ${MACHINE}/execs/${exec_id}/cancel`);
    await connection.calls.settle(5000);
  });

  it('reports a job that was lost with its machine as an error', async () => {
    const lost = jobOf({ status: 'lost', exit_code: null });
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: lost }));
    const result = await connection.agent.callTool({ name: 'exec', arguments: { machine_id, command: 'x' } });
    assert.equal(result.isError, true);
    assert.match(textOf(result), /^Error job_lost: the machine .* stopped or died .*\nWhat to do: .*exec_output/s);
  });
});

describe('background jobs', () => {
  it('exec_start returns the job at once', async () => {
    service.on(`POST ${MACHINE}/execs`, () => ({ status: 201, body: jobOf({ status: 'running', exit_code: null }) }));
    const { data } = await use('exec_start', { machine_id, command: 'npm start', env: { A: 'b' } });
    assert.deepEqual([data.job_id, data.status, data.exit_code], [JOB_ID, 'running', null]);
    assert.deepEqual([service.requests[0]?.query.get('wait_ms'), bodyOf(0).timeout_sec], [null, 3600]);
  });

  it('exec_output reads whole characters from an offset on, and says when the end is reached', async () => {
    const output = Buffer.from('é'.repeat(100));
    service.on(`GET ${MACHINE}/execs/${JOB_ID}`, () => ({ body: jobOf({ stderr_bytes: output.length }) }));
    service.on(`GET ${MACHINE}/execs/*/output`, ({ query }) => ({
      body: pageOf(output, 'stderr', Number(query.get('offset')), Number(query.get('limit'))),
    }));
    const first = await use('exec_output', { machine_id, job_id, stream: 'stderr', max_bytes: 101, wait_sec: 2 });
    assert.deepEqual(
      [...(service.requests[0]?.query ?? [])],
      [
        ['stream', 'stderr'],
        ['offset', '0'],
        ['limit', '101'],
        ['wait_ms', '2000'],
      ],
    );
    assert.deepEqual([first.data.text, first.data.next_offset], ['é'.repeat(50), 100]);
    const rest = await use('exec_output', { machine_id, job_id, stream: 'stderr', offset: 101, max_bytes: 200 });
    assert.deepEqual([rest.data.text, rest.data.offset, rest.data.next_offset], ['é'.repeat(49), 102, null]);
    assert.equal(rest.data.status, 'exited');
  });

  it('exec_cancel returns how the job ended', async () => {
    const job = jobOf({ status: 'canceled', exit_code: null, signal: 'SIGKILL' });
    service.on(`POST ${MACHINE}/execs/${JOB_ID}/cancel`, () => ({
      body: jobOf({ status: 'running', exit_code: null }),
    }));
    service.on(`GET ${MACHINE}/execs/${JOB_ID}`, () => ({ body: job }));
    const { data } = await use('exec_cancel', { machine_id, job_id });
    assert.deepEqual([data.status, data.exit_code], ['canceled', 137]);
  });
});

describe('file tools', () => {
  /** Serves ranges of a file, as the service does. */
  const serveFile = (content: Buffer) =>
    service.on(`GET ${MACHINE}/files/content`, ({ headers }) => {
      const [, from, to] = /bytes=(\d+)-(\d+)/.exec(headers.get('range') ?? '') ?? [];
      const [start, end] = [Number(from), Math.min(Number(to) + 1, content.length)];
      if (start >= content.length) return refused(416, 'range_not_satisfiable', 'The range begins behind the end.');
      const range = `bytes ${start}-${end - 1}/${content.length}`;
      return { status: 206, headers: { 'content-range': range }, body: content.subarray(start, end) };
    });

  it('file_read returns text in whole characters, and reads on from next_offset', async () => {
    serveFile(Buffer.from('ß'.repeat(100)));
    const first = await use('file_read', { machine_id, path: '/root/a b', max_bytes: 101 });
    assert.equal(service.requests[0]?.query.get('path'), '/root/a b');
    assert.deepEqual(first.data, {
      ...{ path: '/root/a b', content: 'ß'.repeat(50), encoding: 'utf-8', size: 200, offset: 0, next_offset: 100 },
    });
    assert.match(first.text, /\[The file is cut at byte 100 of 200. Read on with offset 100.\]$/);
    const rest = await use('file_read', { machine_id, path: '/root/a b', offset: 100 });
    assert.deepEqual([rest.data.content, rest.data.next_offset], ['ß'.repeat(50), null]);
  });

  it('file_read returns bytes that are not text as base64', async () => {
    const content = Buffer.from([0, 255, 128, 1]);
    serveFile(content);
    const { data, text } = await use('file_read', { machine_id, path: '/b' });
    assert.deepEqual([data.encoding, data.content], ['base64', content.toString('base64')]);
    assert.match(text, /^\[base64\]/);
    serveFile(Buffer.from('plain'));
    const asked = await use('file_read', { machine_id, path: '/b', encoding: 'base64' });
    assert.equal(asked.data.content, Buffer.from('plain').toString('base64'));
  });

  it('file_read reads an empty file, and a file without a size', async () => {
    serveFile(Buffer.alloc(0));
    assert.equal((await use('file_read', { machine_id, path: '/empty' })).data.size, 0);
    service.on(`GET ${MACHINE}/files/content`, () => ({
      headers: { 'transfer-encoding': 'chunked' },
      body: 'x'.repeat(150),
    }));
    const { data } = await use('file_read', { machine_id, path: '/proc/x', offset: 10, max_bytes: 100 });
    assert.deepEqual([data.size, (data.content as string).length, data.next_offset], [null, 100, 110]);
  });

  it('file_write sends text or bytes with mode and owner', async () => {
    service.on(`PUT ${MACHINE}/files/content`, ({ body }) => ({ body: entryOf({ size: body.length, mode: '0755' }) }));
    const args = { machine_id, path: '/root/a', content: 'YWJj', encoding: 'base64', mode: '0755', user: 'app' };
    const { data } = await use('file_write', args);
    const [request] = service.requests;
    assert.deepEqual([request?.body, request?.query.get('mode'), request?.query.get('user')], ['abc', '0755', 'app']);
    assert.deepEqual(data, { path: '/root/a', size: 3, mode: '0755' });
    await use('file_write', { machine_id, path: '/root/a', content: 'YWJj', overwrite: false });
    assert.deepEqual([service.requests[1]?.body, service.requests[1]?.headers.get('if-none-match')], ['YWJj', '*']);
  });

  it('file_write refuses content that is not base64', async () => {
    const args = { machine_id, path: '/a', content: 'not base64', encoding: 'base64' };
    const result = await connection.agent.callTool({ name: 'file_write', arguments: args });
    assert.equal(result.isError, true);
    assert.match(textOf(result), /content is not base64/);
    assert.equal(service.requests.length, 0);
  });

  it('file_list lists one page, then the next page', async () => {
    service.on(`GET ${MACHINE}/files`, ({ query }) => ({
      body: { entries: [entryOf({ type: 'directory' })], next_cursor: query.get('cursor') === null ? 'more' : '' },
    }));
    const first = await use('file_list', { machine_id, path: '/root', depth: 2, limit: 1 });
    assert.equal(service.requests[0]?.query.toString(), 'path=%2Froot&depth=2&page_size=1');
    assert.match(first.text, /\/root\/a\/\n\[There are more entries: go on with cursor more\]/);
    const last = await use('file_list', { machine_id, path: '/root', cursor: 'more' });
    assert.equal(last.data.next_cursor, null);
  });
});

describe('ports and snapshots', () => {
  it('port_url returns an address, and says whether a program listens', async () => {
    const token = { token: 't', url: 'http://8000.x/?t', expires_at: '2026-01-02T04:00:00Z' };
    service.on(`POST ${MACHINE}/ports/8000/token`, () => ({ body: token }));
    service.on(`GET ${MACHINE}/ports`, () => ({ body: { ports: [{ port: 3000 }] } }));
    const { data, text } = await use('port_url', { machine_id, port: 8000, expires_in_sec: 60 });
    assert.deepEqual(data, { ...token, is_listening: false });
    assert.match(text, /Nothing listens on port 8000 yet. Open ports: 3000/);
    assert.deepEqual(JSON.parse(service.requests.find(({ method }) => method === 'POST')?.body ?? ''), {
      expires_in_sec: 60,
    });
  });

  it('snapshot_create, snapshot_list and snapshot_restore return the answers of the service', async () => {
    service.on(`POST ${MACHINE}/snapshots`, () => ({ status: 201, body: snapshotOf() }));
    service.on(`GET ${MACHINE}/snapshots`, () => ({ body: { snapshots: [snapshotOf()] } }));
    service.on('GET /v1/snapshots', () => ({ body: { snapshots: [] } }));
    service.on(`POST /v1/snapshots/${SNAPSHOT_ID}/restore`, () => ({ body: machineOf() }));
    const taken = await use('snapshot_create', { machine_id, name: 'before', memory: true });
    assert.deepEqual(bodyOf(0), { name: 'before', memory: true });
    assert.equal(taken.data.snapshot_id, SNAPSHOT_ID);
    assert.equal((await use('snapshot_list', { machine_id })).data.total, 1);
    assert.equal((await use('snapshot_list', {})).text, 'There are no snapshots.');
    assert.equal((await use('snapshot_restore', { snapshot_id: SNAPSHOT_ID })).data.state, 'running');
  });
});
