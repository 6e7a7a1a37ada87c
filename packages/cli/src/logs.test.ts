// Tests `sandbar jobs` and `sandbar logs` against a stand-in for the API.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import {
  ABSENT,
  api,
  endJob,
  JOB,
  MACHINE,
  printed,
  sandbar,
  start,
  until,
  useStandIn,
} from './testing/api-stand-in.ts';

useStandIn();

describe('sandbar jobs', () => {
  it('is a table, and --json the answer of the API', async () => {
    api.job = { status: 'exited', exit_code: null, signal: 'SIGKILL' };
    assert.match(
      await printed(`jobs ${MACHINE}`),
      /^ID +NAME +STATUS +EXIT .*\n\S+ +- +exited +SIGKILL +0 +0 +t +-\n$/,
    );
    assert.equal(JSON.parse(await printed(`jobs ${MACHINE} --json`)).execs[0].id, JOB);
  });
});

describe('sandbar logs', () => {
  it('prints each stream to its own descriptor, exact bytes, and ends with 0 whatever the job ended with', async () => {
    api.stdout = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
    api.stderr = Buffer.from('oops\n');
    api.job.exit_code = 7;
    const { code, stdout, stderr } = await sandbar(['logs', MACHINE, JOB]);
    assert.deepEqual([code, stderr], [0, 'oops\n']);
    assert.deepEqual(stdout, api.stdout);
  });

  it('of a running job prints what there is and returns', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    api.stdout = Buffer.from('so far');
    assert.equal(await printed(`logs ${MACHINE} ${JOB}`), 'so far');
  });

  it('-f goes on to the end of the job and ends with its exit code', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    api.stdout = Buffer.from('so far');
    const child = start(['logs', '-f', MACHINE, JOB]);
    let text = '';
    child.stdout.on('data', (chunk) => (text += chunk));
    await until(() => text === 'so far' && api.outputs.length === 2);
    endJob(7);
    assert.deepEqual(await once(child, 'close'), [7, null]);
    assert.equal(text, 'so far');
  });

  it('-f is ended by Ctrl-C with 130, and the job goes on', async () => {
    api.job = { status: 'running', exit_code: null, signal: null };
    const child = start(['logs', '-f', MACHINE, JOB]);
    await until(() => api.outputs.length === 2);
    child.kill('SIGINT');
    assert.deepEqual(await once(child, 'close'), [130, null]);
    assert.ok(!api.calls.some((call) => call.endsWith('/cancel')));
  });

  it('is ended by Ctrl-C while it looks for the machine or the job, as exec, cp and files watch are', async () => {
    for (const [path, line] of [
      ['/v1/machines', 'logs web build'],
      [`/v1/machines/${MACHINE}/execs`, `logs ${MACHINE} build`],
      ['/v1/machines', 'exec web -- x'],
      ['/v1/machines', 'cp web:/x -'],
      ['/v1/machines', 'files watch web:/x'],
    ] as const) {
      api.calls = [];
      api.silentPath = path;
      const child = start(line.split(' '));
      await until(() => api.calls.includes(`GET ${path}`));
      child.kill('SIGINT');
      assert.deepEqual(await once(child, 'close'), [130, null], line);
    }
  });

  it('finds the job by its name, and says with exit code 3 that output was cut', async () => {
    api.jobFields = { name: 'build', truncated: true };
    const { code, stderr } = await sandbar(['logs', MACHINE, 'build']);
    assert.equal(code, 3);
    assert.match(stderr, /^sandbar: output beyond the limit/);
    api.others = [{ id: ABSENT, name: 'build' }];
    assert.equal((await sandbar(['logs', MACHINE, 'build'])).code, 2);
    assert.equal((await sandbar(['logs', MACHINE, 'test'])).code, 5);
  });
});
