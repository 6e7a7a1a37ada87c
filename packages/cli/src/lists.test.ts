// Tests the commands that list: --json, the activity feed, and what is printed when there is nothing.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { api, MACHINE, printed, sandbar, start, until, useStandIn } from './testing/api-stand-in.ts';

useStandIn();

const ENTRY = { created_at: 't', action: 'exec', actor: 'user', machine_id: MACHINE, metadata: {} };

describe('--json', () => {
  for (const [line, path] of [
    ['ls', '/v1/machines'],
    ['machine ls', '/v1/machines'],
    ['machines', '/v1/machines'],
    ['volume ls', '/v1/volumes'],
    ['volumes', '/v1/volumes'],
    ['snapshot ls', '/v1/snapshots'],
    ['image ls', '/v1/images'],
    ['images', '/v1/images'],
    ['activity', '/v1/activity'],
    [`jobs ${MACHINE}`, `/v1/machines/${MACHINE}/execs`],
    [`machine get ${MACHINE}`, `/v1/machines/${MACHINE}`],
  ] as const) {
    it(`of ${line} prints the answer of the API unchanged`, async () => {
      const answer = await (await fetch(api.baseUrl + path)).json();
      assert.deepEqual(JSON.parse(await printed(`${line} --json`)), answer);
    });
  }
});

describe('sandbar activity', () => {
  it('reads as many pages as --limit needs, and --json has the cursor of the next', async () => {
    const { activity, next_cursor } = JSON.parse(await printed(`activity ${MACHINE} --limit 201 --json`));
    assert.deepEqual([activity.length, next_cursor], [201, 'after 201']);
    assert.deepEqual(api.calls, Array(2).fill(`GET /v1/machines/${MACHINE}/activity`));
    assert.match(await printed('activity --limit 1'), /^TIME.*\nt +exec +user +\S+ +job_id=\S+\n$/);
  });

  it('-f prints new entries until Ctrl-C, and takes no range', async () => {
    assert.equal((await sandbar(['activity', '-f', '--limit', '3'])).code, 2);
    const child = start(['activity', '-f', '--json']);
    await until(() => api.calls.length > 0);
    api.newActivity = [
      { ...ENTRY, action: 'second' },
      { ...ENTRY, action: 'first' },
    ];
    let text = '';
    child.stdout.on('data', (chunk) => (text += chunk));
    await until(() => text.split('\n').length === 3);
    const actions = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).action);
    assert.deepEqual(actions, ['first', 'second']);
    child.kill('SIGINT');
    assert.deepEqual(await once(child, 'close'), [130, null]);
  });
});
