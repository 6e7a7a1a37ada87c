// Tests of a short command in one request: the request that starts a job also waits for its end and returns its output.
// Also tests job labels, merged output, the machine's environment, and jobs for machines that are not running yet.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { Exec, ExecStarted } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Operation } from './support/fake-host/calls.ts';
import { patternOf } from './support/fake-host/jobs.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

const PAGE_BYTES = 65_536;
const WITHIN_MS = 60_000;
const bed = await startTestBed({ host: { subnet: '10.83.0.0/16' } });
const { api, host } = bed;
const { db } = bed.plane.app;
afterEach(() => host.heal());

const create = async (body: object = {}): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128, ...body } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const shared = await create();
const start = (
  body: object,
  query = '',
  machine = shared,
): Promise<Answer<ExecStarted & { detail: string; code: string }>> =>
  api('POST', `/v1/machines/${machine}/execs${query}`, { body });
const bytesOf = (data: string | undefined): Buffer => Buffer.from(data ?? '', 'base64');
const rowOf = (machine: string, id: string) =>
  db.selectFrom('execs').selectAll().where('machine_id', '=', machine).where('id', '=', id).executeTakeFirst();
/** Waits until the host runs a job for the machine, and returns the job's id. */
async function jobOnHost(machine: string): Promise<string> {
  const running = () =>
    [...(host.machines.get(machine)?.jobs ?? [])].find(([, job]) => job.report.status === 'running')?.[0];
  await until(() => running() !== undefined, 'the host runs the job', WITHIN_MS);
  return running() ?? '';
}
/** Returns how often the host was asked for output of jobs of this machine. */
const outputsAsked = (machine: string): number =>
  host.calls.filter((call) => call.operation === 'output' && call.machineId === machine).length;
/** Waits until a request has asked the host for the end of a job of this machine. */
const untilItWaits = (machine: string) =>
  until(
    () => host.calls.some((call) => call.operation === 'getJob' && call.machineId === machine),
    'the host is asked for the end',
    WITHIN_MS,
  );
/** Starts a job that prints `output` and ends while the request waits for its end. */
async function endsWhileWaiting(output: Buffer) {
  const machine = await create();
  const asking = start({ command: 'sleep' }, '?wait_ms=60000', machine);
  const job = await jobOnHost(machine);
  await untilItWaits(machine);
  host.append(machine, job, output);
  host.endJob(machine, job);
  return { machine, json: (await asking).json };
}
/** Returns the start request that the host received for a job. */
const toldOf = (machine: string, id: string) => host.machines.get(machine)?.jobs.get(id)?.wanted;

describe('a start of a job with wait_ms', () => {
  it('answers its end and its output', async () => {
    const { status, json } = await start({ command: 'print hello there', timeout_sec: 5 }, '?wait_ms=30000');
    assert.equal(status, 201);
    assert.deepEqual([json.status, json.exit_code, json.timeout_sec], ['exited', 0, 5]);
    assert(json.finished_at);
    assert.deepEqual(json.output?.stdout, {
      exec_id: json.id,
      stream: 'stdout',
      offset: 0,
      data: Buffer.from('hello there').toString('base64'),
      next_offset: 11,
      total_bytes: 11,
      eof: true,
    });
    assert.deepEqual(
      [json.output?.stderr.stream, json.output?.stderr.data, json.output?.stderr.eof],
      ['stderr', '', true],
    );
    assert.equal(json.stdout_bytes, 11);
  });

  it('answers the exit code of a command that failed', async () => {
    const { json } = await start({ command: 'exit 7' }, '?wait_ms=30000');
    assert.deepEqual([json.status, json.exit_code, json.output?.stdout.eof], ['exited', 7, true]);
  });

  it('answers the moment the job ends, whatever it learns first', async () => {
    const machine = await create();
    // The answer to getJob is held back, so the event that the job ended arrives first.
    host.fault('getJob', 'answerLate', 1);
    const asking = start({ command: 'sleep' }, '?wait_ms=60000', machine);
    const job = await jobOnHost(machine);
    host.append(machine, job, Buffer.from('out'));
    await untilItWaits(machine);
    host.endJob(machine, job, { exit_code: 3 });
    await until(async () => (await rowOf(machine, job))?.status === 'exited', 'the end is recorded', WITHIN_MS);
    host.release();
    const { json } = await asking;
    assert.deepEqual([json.status, json.exit_code, json.output?.stdout.eof], ['exited', 3, true]);
    assert(json.finished_at);
  });

  it('reads the output while the end of the job is being recorded', async () => {
    const machine = await create();
    const asking = start({ command: 'sleep' }, '?wait_ms=60000', machine);
    const job = await jobOnHost(machine);
    host.append(machine, job, patternOf(PAGE_BYTES));
    await db.transaction().execute(async (tx) => {
      // Nobody else can record the end of the job until this transaction is over.
      await tx.selectFrom('execs').select('id').where('id', '=', job).forUpdate().execute();
      host.endJob(machine, job);
      await until(() => outputsAsked(machine) > 0, 'the output is read', WITHIN_MS);
    });
    const { json } = await asking;
    assert.equal(json.status, 'exited');
    assert(bytesOf(json.output?.stdout.data).equals(patternOf(PAGE_BYTES)));
  });

  it('of a short command takes one call to the host', async () => {
    const machine = await create();
    const { json } = await start({ command: 'print hello' }, '?wait_ms=30000', machine);
    assert.equal(bytesOf(json.output?.stdout.data).toString(), 'hello');
    const calls = host.calls.filter(({ machineId }) => machineId === machine).map(({ operation }) => operation);
    assert.deepEqual(calls, ['ensure', 'startJob']);
  });

  it('gets little output together with the end of the job, and asks the host for more of it once', async () => {
    for (const [size, asked] of [
      [16_384, 0],
      [16_385, 1],
    ] as const) {
      const { machine, json } = await endsWhileWaiting(patternOf(size));
      const stdout = json.output?.stdout;
      assert.deepEqual([stdout?.next_offset, stdout?.total_bytes, stdout?.eof], [size, size, true]);
      assert(bytesOf(stdout?.data).equals(patternOf(size)));
      assert.deepEqual([json.output?.stderr.data, json.output?.stderr.eof], ['', true]);
      // Nobody is asked for stderr, because the report says that there is none.
      assert.equal(outputsAsked(machine), asked);
    }
  });

  it('asks an older agent for the output, because it never sends that with the end of a job', async () => {
    host.keepsOutput = true;
    try {
      const { machine, json } = await endsWhileWaiting(Buffer.from('out'));
      assert.deepEqual([bytesOf(json.output?.stdout.data).toString(), json.output?.stdout.eof], ['out', true]);
      assert.equal(outputsAsked(machine), 1);
    } finally {
      host.keepsOutput = false;
    }
  });

  it('answers the running job and its output so far when the time is over', async () => {
    const asking = start({ command: 'sleep' }, '?wait_ms=200');
    const job = await jobOnHost(shared);
    host.append(shared, job, Buffer.from('so far'));
    const { status, json } = await asking;
    assert.deepEqual([status, json.id, json.status, json.exit_code], [201, job, 'running', null]);
    assert.equal(json.output?.stdout.eof, false);
    const rest = await api(
      'GET',
      `/v1/machines/${shared}/execs/${job}/output?offset=${json.output?.stdout.next_offset}`,
    );
    assert.equal(Buffer.concat([bytesOf(json.output?.stdout.data), bytesOf(rest.json.data)]).toString(), 'so far');
    host.endJob(shared, job);
  });

  it('of 0 does not wait, and has the output all the same', async () => {
    const { status, json } = await start({ command: 'sleep' }, '?wait_ms=0');
    assert.deepEqual([status, json.status, json.output?.stdout.next_offset], [201, 'running', 0]);
    host.endJob(shared, json.id);
  });

  it('answers the first 64 KiB of long output, and says where to go on', async () => {
    const size = 3 * PAGE_BYTES + 5;
    const { json } = await start({ command: `bytes ${size}` }, '?wait_ms=30000');
    const stdout = json.output?.stdout;
    assert.deepEqual([stdout?.next_offset, stdout?.total_bytes, stdout?.eof], [PAGE_BYTES, size, false]);
    assert.equal(json.stdout_bytes, size);
    const pages = [bytesOf(stdout?.data)];
    for (let offset = stdout?.next_offset ?? 0; offset < size; ) {
      const page = (await api('GET', `/v1/machines/${shared}/execs/${json.id}/output?offset=${offset}`)).json;
      pages.push(bytesOf(page.data));
      offset = page.next_offset;
    }
    assert(Buffer.concat(pages).equals(patternOf(size)));
  });

  it('answers what is known when the host goes away meanwhile, and the job goes on', async () => {
    const machine = await create();
    const asking = start({ command: 'sleep' }, '?wait_ms=60000', machine);
    const job = await jobOnHost(machine);
    await untilItWaits(machine);
    host.fault('getJob', 'drop');
    host.fault('output', 'drop');
    await host.away();
    const { status, json, text } = await asking;
    assert.equal(status, 201, text);
    assert.deepEqual([json.id, json.status], [job, 'running']);
    assert.deepEqual(
      [json.output?.stdout.data, json.output?.stdout.next_offset, json.output?.stdout.eof],
      ['', 0, false],
    );
    host.heal();
    await host.listen();
    await bed.settled(() => bed.plane.app.hosts.reachableIds().length === 1);
    host.endJob(machine, job, { exit_code: 0 });
    await until(async () => (await rowOf(machine, job))?.status === 'exited', 'the end is recorded', WITHIN_MS);
  });

  for (const wait of ['-1', '60001', 'soon', '1.5']) {
    it(`is a 400 for wait_ms=${wait}, and starts nothing`, async () => {
      const before = host.callsOf('startJob');
      const { status, json } = await start({ command: 'true' }, `?wait_ms=${wait}`);
      assert.deepEqual([status, json.code], [400, 'validation_error']);
      assert.match(json.detail, /^wait_ms must be an integer from 0 to 60000\.$/);
      assert.equal(host.callsOf('startJob'), before);
    });
  }
});

describe('a start of a job without wait_ms', () => {
  it('answers at once, as ever, without output', async () => {
    const { status, json } = await start({ command: 'sleep' });
    assert.deepEqual([status, json.status, 'output' in json], [201, 'running', false]);
    host.endJob(shared, json.id);
  });
});

describe('the name of a job', () => {
  it('is on the job ever after', async () => {
    const { json } = await start({ command: 'true', name: 'lint' }, '?wait_ms=30000');
    assert.equal(json.name, 'lint');
    assert.equal((await api('GET', `/v1/machines/${shared}/execs/${json.id}`)).json.name, 'lint');
    const { execs } = (await api('GET', `/v1/machines/${shared}/execs`)).json;
    assert.equal(execs.find((exec: Exec) => exec.id === json.id).name, 'lint');
    assert.equal((await api('POST', `/v1/machines/${shared}/execs/${json.id}/cancel`)).json.name, 'lint');
  });

  it('is empty when none was given, and no business of the host', async () => {
    const { json } = await start({ command: 'true' }, '?wait_ms=30000');
    assert.equal(json.name, '');
    const named = await start({ command: 'true', name: 'x'.repeat(255) }, '?wait_ms=30000');
    assert.equal(named.status, 201);
    assert(!('name' in (toldOf(shared, named.json.id) ?? {})));
    assert.equal((await start({ command: 'true', name: 'x'.repeat(256) })).status, 400);
  });
});

describe('what the host is told of a job', () => {
  it('has merge_output when it was asked for', async () => {
    const merged = await start({ command: 'true', merge_output: true }, '?wait_ms=30000');
    assert.equal(toldOf(shared, merged.json.id)?.merge_output, true);
    const plain = await start({ command: 'true' }, '?wait_ms=30000');
    assert.notEqual(toldOf(shared, plain.json.id)?.merge_output, true);
  });

  it('has the environment of the machine under that of the job', async () => {
    const machine = await create({ env: { A: 'machine', B: 'machine' } });
    const { json } = await start({ command: 'true', env: { B: 'job', C: 'job' } }, '?wait_ms=30000', machine);
    assert.deepEqual(toldOf(machine, json.id)?.env, { A: 'machine', B: 'job', C: 'job' });
    const bare = await start({ command: 'true' }, '?wait_ms=30000', machine);
    assert.deepEqual(toldOf(machine, bare.json.id)?.env, { A: 'machine', B: 'machine' });
  });

  it('has the generation of the machine, so that none reaches a later boot', async () => {
    const machine = await create();
    const generations: (number | undefined)[] = [];
    for (let boot = 0; boot < 2; boot++) {
      const { json } = await start({ command: 'true' }, '?wait_ms=30000', machine);
      generations.push(toldOf(machine, json.id)?.generation);
      assert.equal(generations.at(-1), host.machines.get(machine)?.report.generation);
      await api('POST', `/v1/machines/${machine}/stop`);
      await api('POST', `/v1/machines/${machine}/start`);
    }
    assert((generations[1] ?? 0) > (generations[0] ?? 0));
  });
});

describe('the environment of a machine', () => {
  it('may have 16 KiB in all, and more is a 400', async () => {
    const fits = { A: 'x'.repeat(16_384 - '{"A":""}'.length) };
    await create({ env: fits });
    const { status, json } = await api('POST', '/v1/machines', { body: { env: { A: `${fits.A}x` } } });
    assert.deepEqual([status, json.detail], [400, 'env must be at most 16384 bytes as JSON.']);
  });

  const BAD: [object, RegExp][] = [
    [{ env: { A: 1 } }, /^env\.A must be a string/],
    [{ env: { 'A=B': 'x' } }, /^env must have names/],
    [{ env: [] }, /^env must be an object/],
  ];
  for (const [body, words] of BAD) {
    it(`is a 400 that says why: ${JSON.stringify(body)}`, async () => {
      const { status, json } = await api('POST', '/v1/machines', { body });
      assert.equal(status, 400);
      assert.match(json.detail, words);
    });
  }

  it('is never shown', async () => {
    const secret = 'a-secret-of-the-machine';
    const made = await api('POST', '/v1/machines', { body: { memory_mb: 128, env: { TOKEN: secret } } });
    const path = `/v1/machines/${made.json.id}`;
    const job = await start({ command: 'true' }, '?wait_ms=30000', made.json.id);
    const snapshot = await api('POST', `${path}/snapshots`);
    const told = [
      made,
      job,
      snapshot,
      await api('GET', path),
      await api('PATCH', path, { body: { name: 'x' } }),
      await api('GET', '/v1/machines'),
      await api('GET', `${path}/execs`),
      await api('GET', '/v1/activity'),
      await api('POST', `${path}/stop`),
      await api('POST', `${path}/start`),
      await api('DELETE', `${path}?delete_snapshots=true`),
    ];
    for (const { text } of told) assert(!text.includes(secret) && !text.includes('"TOKEN"'), text);
    assert(!bed.logged().includes(secret), 'nor logged');
  });

  it('is part of what an Idempotency-Key stands for', async () => {
    const ask = (env: object) =>
      api('POST', '/v1/machines', { body: { memory_mb: 128, env }, headers: { 'idempotency-key': 'of an env' } });
    assert.equal((await ask({ A: '1' })).status, 201);
    assert.equal((await ask({ A: '1' })).status, 200);
    assert.equal((await ask({ A: '2' })).status, 409);
  });
});

describe('a job of a machine that is', () => {
  /**
   * Makes the next host call of this kind hang, sends the request, and returns the operation that the request began.
   */
  async function hold(step: Operation, ask: () => Promise<Answer>) {
    host.fault(step, 'hang', 1);
    const first = ask();
    const unfinished = () =>
      db.selectFrom('operations').selectAll().where('finished_at', 'is', null).executeTakeFirst();
    await until(async () => (await unfinished()) !== undefined, 'it is under way', WITHIN_MS);
    const operation = await unfinished();
    assert(operation?.machine_id);
    return { first, id: operation.id, machine: operation.machine_id };
  }
  const stop = async (): Promise<string> => {
    const id = await create();
    assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
    return id;
  };

  it('being created waits, and runs', async () => {
    const { first, id, machine } = await hold('ensure', () =>
      api('POST', '/v1/machines', { body: { memory_mb: 128 } }),
    );
    const asking = start({ command: 'print made' }, '?wait_ms=30000', machine);
    await somebodyWaitsFor(id);
    assert.equal(host.calls.filter((call) => call.operation === 'startJob' && call.machineId === machine).length, 0);
    host.release();
    assert.equal((await first).status, 201);
    const { status, json } = await asking;
    assert.deepEqual([status, bytesOf(json.output?.stdout.data).toString()], [201, 'made']);
  });

  it('being started waits, and runs in the new boot', async () => {
    const stopped = await stop();
    const { first, id } = await hold('ensure', () => api('POST', `/v1/machines/${stopped}/start`));
    const asking = start({ command: 'print started' }, '?wait_ms=30000', stopped);
    await somebodyWaitsFor(id);
    host.release();
    assert.equal((await first).status, 200);
    const { status, json } = await asking;
    assert.deepEqual([status, json.status], [201, 'exited']);
    const generation = (
      await db.selectFrom('machines').select('generation').where('id', '=', stopped).executeTakeFirst()
    )?.generation;
    assert.equal(toldOf(stopped, json.id)?.generation, generation);
  });

  it('being restored waits, and runs', async () => {
    const machine = await create();
    const snapshot = (await api('POST', `/v1/machines/${machine}/snapshots`)).json.id;
    const { first, id } = await hold('ensure', () => api('POST', `/v1/snapshots/${snapshot}/restore`));
    const asking = start({ command: 'true' }, '?wait_ms=30000', machine);
    await somebodyWaitsFor(id);
    host.release();
    assert.equal((await first).status, 200);
    assert.equal((await asking).json.status, 'exited');
  });

  it('being created in vain is a 404 in the end', async () => {
    host.fault('ensure', 'hangThenFail', 1);
    const first = api('POST', '/v1/machines', { body: { memory_mb: 128 } });
    const unfinished = () =>
      db.selectFrom('operations').selectAll().where('finished_at', 'is', null).executeTakeFirst();
    await until(async () => (await unfinished()) !== undefined, 'it is under way', WITHIN_MS);
    const operation = await unfinished();
    const asking = start({ command: 'true' }, '', operation?.machine_id ?? '');
    await somebodyWaitsFor(operation?.id ?? '');
    host.release();
    assert.equal((await first).status, 500);
    assert.equal((await asking).status, 404);
    await checkAll(bed);
  });

  it('being stopped or destroyed, stopped, or destroyed is a 409', async () => {
    const machine = await create();
    const stopping = await hold('ensure', () => api('POST', `/v1/machines/${machine}/stop`));
    assert.equal((await start({ command: 'true' }, '?wait_ms=30000', machine)).status, 409);
    host.release();
    await stopping.first;
    assert.equal((await start({ command: 'true' }, '?wait_ms=30000', machine)).status, 409);
    const destroying = await hold('delete', () => api('DELETE', `/v1/machines/${machine}`));
    assert.equal((await start({ command: 'true' }, '?wait_ms=30000', machine)).status, 409);
    host.release();
    await destroying.first;
    assert.equal((await start({ command: 'true' }, '?wait_ms=30000', machine)).status, 409);
    assert.equal(host.calls.filter((call) => call.operation === 'startJob' && call.machineId === machine).length, 0);
    await checkAll(bed);
  });

  it('another account’s is a 404 at once, also while it is being created', async () => {
    const { first, machine } = await hold('ensure', () => api('POST', '/v1/machines', { body: { memory_mb: 128 } }));
    const path = `/v1/machines/${machine}/execs`;
    assert.equal((await api('POST', path, { key: bed.keys.other, body: { command: 'true' } })).status, 404);
    host.release();
    const made: Machine = (await first).json as Machine;
    assert.equal(made.state, 'running');
  });
});
