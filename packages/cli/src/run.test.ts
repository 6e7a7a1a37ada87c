// Tests `sandbar run` and `sandbar exec` against a stand-in for the API.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { api, endJob, MACHINE, sandbar, start, until, useStandIn, VOLUME } from './testing/api-stand-in.ts';

useStandIn();

describe('sandbar run and exec', () => {
  it('prints exact bytes, ends with the exit code of the command, and destroys the machine', async () => {
    api.stdout = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
    api.job.exit_code = 7;
    const result = await sandbar(['run', '--memory', '256', '--env', 'A=b=c', '--', 'cmd', '-x', '--', 'y']);
    assert.equal(result.code, 7);
    assert.deepEqual(result.stdout, api.stdout);
    assert.equal(api.calls.at(-1), `DELETE /v1/machines/${MACHINE}`);
    const { exec_id, ...command } = JSON.parse(api.bodies[1] ?? '');
    assert.match(exec_id, /^[0-9a-f-]{36}$/);
    assert.deepEqual(command, { argv: ['cmd', '-x', '--', 'y'], env: { A: 'b=c' } });
    assert.deepEqual(JSON.parse(api.bodies[0] ?? ''), { memory_mb: 256, expires_in_sec: 120, on_expiry: 'destroy' });
  });

  it('a short command needs one request between the create and the destroy', async () => {
    api.stdout = Buffer.from('short');
    assert.equal((await sandbar(['run', '--', 'x'])).stdout.toString(), 'short');
    assert.deepEqual(api.calls, [
      'POST /v1/machines',
      `POST /v1/machines/${MACHINE}/execs`,
      `DELETE /v1/machines/${MACHINE}`,
    ]);
    assert.ok(api.queries.some((query) => /^POST wait_ms=\d+$/.test(query)));
  });

  it('output beyond the first page is read to its end, every byte once', async () => {
    api.stdout = Buffer.from('0123456789');
    api.firstPageBytes = 4;
    assert.equal((await sandbar(['run', '--', 'x'])).stdout.toString(), '0123456789');
  });

  it('a service that is unavailable for a while loses neither the result nor the exit code', async () => {
    api.stdout = Buffer.from('result');
    api.firstPageBytes = 0;
    api.job.exit_code = 5;
    api.refusals = 2;
    const { code, stdout: output } = await sandbar(['run', '--', 'x']);
    assert.deepEqual([code, output.toString(), api.refusals], [5, 'result', 0]);
    assert.equal(api.calls.at(-1), `DELETE /v1/machines/${MACHINE}`);
  });

  it('when the service stays unavailable, the machine is kept and its id is printed', async () => {
    api.firstPageBytes = 0;
    api.refusals = 1000;
    api.retryAfter = '3600';
    api.stdout = Buffer.from('result');
    const { code, stderr } = await sandbar(['run', '--', 'x']);
    assert.equal(code, 1);
    assert.match(stderr, /is left, because .* sandbar machine set .* --expires never\nsandbar: host_unavailable: /);
    assert.ok(!api.calls.some((call) => call.startsWith('DELETE')), api.calls.join());
  });

  it('everything after -- belongs to the command, --help as well', async () => {
    await sandbar(['exec', MACHINE, '--', 'ls', '--help']);
    await sandbar(['run', '--', 'ls', '-h', '--version']);
    assert.deepEqual(JSON.parse(api.bodies[0] ?? '').argv, ['ls', '--help']);
    assert.deepEqual(JSON.parse(api.bodies[2] ?? '').argv, ['ls', '-h', '--version']);
  });

  it('options of the machine and of the job are sent', async () => {
    const machine = '--name n --metadata a=1 --metadata b=x=y --expires 1h --on-expiry stop --vcpus 2 --stack python';
    const job = '--job-name label --merge-output --user u --cwd /w --timeout 9 --env INHERITED';
    await sandbar(['run', ...machine.split(' '), ...job.split(' '), '--', 'x'], { env: { INHERITED: 'yes' } });
    assert.deepEqual(JSON.parse(api.bodies[0] ?? ''), {
      name: 'n',
      metadata: { a: '1', b: 'x=y' },
      expires_in_sec: 120,
      on_expiry: 'destroy',
      vcpus: 2,
      stack: 'python',
    });
    const { exec_id: _, ...sent } = JSON.parse(api.bodies[1] ?? '');
    const rest = { user: 'u', cwd: '/w', timeout_sec: 9, env: { INHERITED: 'yes' } };
    assert.deepEqual(sent, { argv: ['x'], name: 'label', merge_output: true, ...rest });
    await sandbar(['exec', MACHINE, '--name', 'other', '--', 'x']);
    assert.equal(JSON.parse(api.bodies[2] ?? '').name, 'other');
  });

  it('the exit code is 128+n when signal n ended the command, and 124 after a time-out', async () => {
    api.job = { status: 'exited', exit_code: null, signal: 'SIGTERM' };
    assert.equal((await sandbar(['run', '--', 'x'])).code, 143);
    // A real-time signal has no name.
    api.job = { status: 'exited', exit_code: null, signal: 'SIG36' };
    assert.equal((await sandbar(['run', '--', 'x'])).code, 164);
    api.job = { status: 'timed_out', exit_code: null, signal: 'SIGTERM' };
    assert.equal((await sandbar(['run', '--', 'x'])).code, 124);
  });

  it('--rm=false and the former --keep keep the machine, print its id and end its early expiry', async () => {
    for (const option of ['--rm=false', '--keep']) {
      const { code, stderr } = await sandbar(['run', option, '--', 'x']);
      assert.deepEqual([code, stderr], [0, `sandbar: machine ${MACHINE} is kept\n`]);
      assert.equal(api.calls.at(-1), `PATCH /v1/machines/${MACHINE}`);
      assert.deepEqual(JSON.parse(api.bodies.at(-1) ?? ''), { expires_in_sec: null, on_expiry: 'destroy' });
    }
    await sandbar(['run', '--rm', '--', 'x']);
    assert.equal(api.calls.at(-1), `DELETE /v1/machines/${MACHINE}`);
    assert.equal((await sandbar(['run', '--rm', 'x'])).code, 2);
  });

  it('a kept machine gets its --expires at the end, or at the create when it is earlier than the lease', async () => {
    await sandbar(['run', '--rm=false', '--expires', '1h', '--on-expiry', 'stop', '--', 'x']);
    const [created, , changed] = api.bodies.map((body) => JSON.parse(body));
    assert.deepEqual(created, { expires_in_sec: 120, on_expiry: 'destroy' });
    assert.equal(changed.on_expiry, 'stop');
    assert.ok(changed.expires_in_sec > 3500 && changed.expires_in_sec <= 3600, changed.expires_in_sec);
    await sandbar(['run', '--rm=false', '--expires', '60s', '--on-expiry', 'stop', '--', 'x']);
    assert.deepEqual(JSON.parse(api.bodies[3] ?? ''), { expires_in_sec: 60, on_expiry: 'stop' });
    assert.equal(api.bodies.length, 5);
  });

  it('the expiry is renewed while the command runs', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    const child = start(['run', '--', 'sleep', '1000'], { SANDBAR_RUN_LEASE_SEC: '10' });
    const renewals = () => api.calls.filter((call) => call.startsWith('PATCH')).length;
    await until(() => renewals() >= 2);
    assert.deepEqual(JSON.parse(api.bodies.at(-1) ?? ''), { expires_in_sec: 10, on_expiry: 'destroy' });
    endJob(0);
    assert.deepEqual(await once(child, 'close'), [0, null]);
    assert.equal(api.calls.at(-1), `DELETE /v1/machines/${MACHINE}`);
  });

  it('a machine with a kept disk is stopped and not destroyed when its CLI is killed', async () => {
    await sandbar(['run', '--root-volume', VOLUME, '--', 'x']);
    const { on_expiry, root_volume_id } = JSON.parse(api.bodies[0] ?? '');
    assert.deepEqual([on_expiry, root_volume_id], ['stop', VOLUME]);
  });

  it('output that was cut at the limit gives a message, and exit code 3 unless the command failed', async () => {
    api.jobFields = { truncated: true };
    const cut = await sandbar(['run', '--', 'x']);
    assert.equal(cut.code, 3);
    assert.match(cut.stderr, /^sandbar: output beyond the limit .* sandbar cp\n$/);
    api.job.exit_code = 9;
    assert.equal((await sandbar(['run', '--', 'x'])).code, 9);
  });

  it('-i passes standard input, of any length', async () => {
    for (const input of ['hello', '', 'x'.repeat(3_000_000)]) {
      api.job = { status: 'running', exit_code: null, signal: null };
      const ran = sandbar(['run', '-i', '--', 'cat'], { input });
      await until(() => api.isStdinClosed && api.outputs.length === 2);
      assert.equal(api.stdin.toString(), input);
      endJob(0);
      assert.equal((await ran).code, 0);
      api.isStdinClosed = false;
    }
  });

  it('-i sends typed input at once, and then the end of the input', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    const child = start(['exec', '-i', MACHINE, '--', 'cat']);
    await until(() => api.calls.some((call) => call.endsWith('/execs')));
    for (const typed of ['one\n', 'one\ntwo\n', 'one\ntwo\nthree']) {
      child.stdin.write(typed.slice(api.stdin.length));
      await until(() => api.stdin.toString() === typed);
      assert.ok(!api.isStdinClosed);
    }
    child.stdin.end();
    await until(() => api.isStdinClosed && api.outputs.length === 2);
    endJob(3);
    assert.deepEqual(await once(child, 'close'), [3, null]);
  });

  it('-i ends when the command ends, even if the input goes on', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    const child = start(['exec', '-i', MACHINE, '--', 'cat']);
    await until(() => api.outputs.length === 2);
    endJob(4);
    assert.deepEqual(await once(child, 'close'), [4, null]);
  });

  it('-i goes on without input when the command closes its stdin, and fails when the service does', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    for (const [refusal, code] of [
      [{ status: 409, code: 'conflict' }, 5],
      [{ status: 403, code: 'forbidden' }, 4],
    ] as const) {
      api.stdinRefusal = refusal;
      const child = start(['exec', '-i', MACHINE, '--', 'cat']);
      await until(() => api.outputs.length === 2);
      child.stdin.write('x');
      await until(() => api.calls.some((call) => call.startsWith('PUT')));
      if (code === 5) endJob(5);
      assert.deepEqual(await once(child, 'close'), [code, null]);
      api.job = { status: 'running', exit_code: null, signal: null };
      api.calls = [];
      api.outputs = [];
    }
  });

  it('with -i, Ctrl-C still cancels the job', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    const child = start(['exec', '-i', MACHINE, '--', 'cat']);
    await until(() => api.outputs.length === 2);
    child.kill('SIGINT');
    assert.deepEqual(await once(child, 'close'), [130, null]);
    assert.ok(api.calls.some((call) => call.endsWith('/cancel')));
  });

  it('Ctrl-C cancels the job, destroys the machine and ends with 130', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    const child = start(['run', '--', 'sleep', '1000']);
    await until(() => api.calls.some((call) => call.endsWith('/output')));
    child.kill('SIGINT');
    const [code] = await once(child, 'close');
    assert.equal(code, 130);
    const { exec_id } = JSON.parse(api.bodies[1] ?? '');
    assert.deepEqual(api.calls.slice(-2), [
      `POST /v1/machines/${MACHINE}/execs/${exec_id}/cancel`,
      `DELETE /v1/machines/${MACHINE}`,
    ]);
  });

  it('Ctrl-C while the machine is being created destroys it', async () => {
    api.createDelayMs = 300;
    const child = start(['run', '--', 'x']);
    await until(() => api.calls.includes('POST /v1/machines'));
    child.kill('SIGTERM');
    const [code] = await once(child, 'close');
    assert.equal(code, 143);
    assert.equal(api.calls.at(-1), `DELETE /v1/machines/${MACHINE}`);
  });

  it('cleans up as after Ctrl-C, but exits with 0, when the reader of its output ends', async () => {
    for (const [stream, args, last] of [
      ['stdout', ['run', '--', 'yes'], `DELETE /v1/machines/${MACHINE}`],
      ['stderr', ['run', '--', 'yes'], `DELETE /v1/machines/${MACHINE}`],
      ['stdout', ['run', '--rm=false', '--', 'yes'], `PATCH /v1/machines/${MACHINE}`],
      ['stdout', ['exec', MACHINE, '--', 'yes'], undefined],
    ] as const) {
      api.calls = [];
      api.job = { status: 'running', exit_code: null, signal: null };
      api.firstPageBytes = 0;
      api[stream] = Buffer.from('y\n'.repeat(100_000));
      const child = start([...args]);
      child[stream].once('data', () => child[stream].destroy());
      assert.deepEqual(await once(child, 'close'), [0, null]);
      const ends = api.calls.slice(last === undefined ? -1 : -2);
      assert.match(ends[0] ?? '', /\/cancel$/);
      assert.equal(ends[1], last);
      api[stream] = Buffer.alloc(0);
    }
  });
});
