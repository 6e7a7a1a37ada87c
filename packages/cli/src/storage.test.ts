// Tests the commands about volumes and snapshots against a stand-in for the API.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ABSENT, api, MACHINE, printed, SNAPSHOT, sandbar, useStandIn, VOLUME } from './testing/api-stand-in.ts';

useStandIn();

describe('sandbar volume', () => {
  it('ls prints a table, and errors on standard error', async () => {
    for (const line of ['volume ls', 'volumes']) {
      const { stdout, stderr } = await sandbar(line.split(' '));
      assert.match(stdout.toString(), new RegExp(`^ID +NAME.*\\n${VOLUME} +- +root +10 +error.*\\n$`));
      assert.equal(stderr, `sandbar: ${VOLUME}: The host has lost it.\n`);
    }
  });

  it('create, attach and detach send the options and print the answer', async () => {
    const json = async (line: string) => JSON.parse(await printed(`volume ${line} --json`));
    assert.equal((await json('create --size 5 --name x')).id, VOLUME);
    assert.equal((await json('create --size 6')).id, VOLUME);
    assert.equal((await json(`attach ${VOLUME} ${MACHINE} --path /data`)).id, VOLUME);
    assert.equal((await json(`attach ${VOLUME} ${MACHINE}`)).id, VOLUME);
    assert.equal((await json(`detach ${VOLUME}`)).id, VOLUME);
    assert.deepEqual(
      api.calls.map((call, index) => [call, api.bodies[index]]),
      [
        ['POST /v1/volumes', '{"size_gb":5,"name":"x"}'],
        ['POST /v1/volumes', '{"size_gb":6}'],
        [`POST /v1/volumes/${VOLUME}/attach`, `{"machine_id":"${MACHINE}","mount_path":"/data"}`],
        [`POST /v1/volumes/${VOLUME}/attach`, `{"machine_id":"${MACHINE}"}`],
        [`POST /v1/volumes/${VOLUME}/detach`, ''],
      ],
    );
    const several = JSON.parse(await printed(`volume detach ${VOLUME} ${ABSENT} --json`));
    assert.equal(several.length, 2);
  });

  it('without a terminal, rm deletes only with --yes, but its former name `delete` needs no --yes', async () => {
    const { code, stderr } = await sandbar(['volume', 'rm', VOLUME]);
    assert.equal(code, 2);
    assert.match(stderr, /^sandbar: Delete .* with all data\? Nothing was changed: .*--yes\n$/);
    assert.deepEqual(api.calls, []);
    for (const line of ['volume rm --yes', 'volumes delete']) {
      api.calls = [];
      assert.equal(await printed(`${line} ${VOLUME} ${ABSENT}`), `${VOLUME}: deleted\n${ABSENT}: deleted\n`);
      assert.deepEqual(api.calls, [`DELETE /v1/volumes/${VOLUME}`, `DELETE /v1/volumes/${ABSENT}`]);
    }
  });

  it('a wrong command line exits with 2 and sends no request', async () => {
    const wrong = ['rm', 'detach', 'get', 'attach v1', 'attach v1 m1 m2', 'ls v1', 'create', 'create --size big'];
    wrong.push('create --size 5 v1', 'ls --size 5', 'attach v1 m1 --name x', 'create --size 5 --path /x', 'format v1');
    for (const line of wrong) assert.equal((await sandbar(['volume', ...line.split(' ')])).code, 2, line);
    assert.deepEqual(api.calls, []);
  });
});

describe('sandbar snapshot', () => {
  it('ls prints a table, and errors on standard error', async () => {
    const { stdout, stderr } = await sandbar(['snapshot', 'ls']);
    assert.match(stdout.toString(), /^ID +NAME.*\n\S+ +before +disk +10 +3 +error .*\n$/);
    assert.equal(stderr, `sandbar: ${SNAPSHOT}: The host has lost it.\n`);
    await sandbar(['snapshots', 'list', MACHINE]);
    assert.deepEqual(api.calls, ['GET /v1/snapshots', `GET /v1/machines/${MACHINE}/snapshots`]);
  });

  it('create, get, restore and rm send the options and print the result', async () => {
    assert.equal(JSON.parse(await printed(`snapshot create ${MACHINE} --name x --memory --json`)).id, SNAPSHOT);
    assert.match(await printed(`snapshot create ${MACHINE}`), new RegExp(`^ID .*\\n${SNAPSHOT} `));
    assert.equal(await printed(`snapshot restore ${SNAPSHOT} -y`), `machine ${MACHINE}: restored, running\n`);
    assert.equal(JSON.parse(await printed(`snapshot get ${SNAPSHOT} --json`)).id, SNAPSHOT);
    assert.equal(
      await printed(`snapshot rm ${SNAPSHOT} ${ABSENT} --yes`),
      `${SNAPSHOT}: deleted\n${ABSENT}: deleted\n`,
    );
    assert.deepEqual(api.calls, [
      `POST /v1/machines/${MACHINE}/snapshots`,
      `POST /v1/machines/${MACHINE}/snapshots`,
      `POST /v1/snapshots/${SNAPSHOT}/restore`,
      `GET /v1/snapshots/${SNAPSHOT}`,
      `DELETE /v1/snapshots/${SNAPSHOT}`,
      `DELETE /v1/snapshots/${ABSENT}`,
    ]);
    assert.deepEqual(api.bodies, ['{"name":"x","memory":true}', '{}', '']);
  });

  it('without a terminal, rm and restore need --yes, but their former names do not', async () => {
    for (const action of ['rm', 'restore']) {
      assert.equal((await sandbar(['snapshot', action, SNAPSHOT])).code, 2);
    }
    assert.deepEqual(api.calls, []);
    assert.equal((await sandbar(['snapshots', 'restore', SNAPSHOT])).code, 0);
    assert.equal((await sandbar(['snapshots', 'delete', SNAPSHOT])).code, 0);
  });

  it('a wrong command line exits with 2 and sends no request', async () => {
    const wrong = ['create', 'create m1 m2', 'restore', 'restore s1 s2', 'restore s1 --memory', 'get', 'rm', 'ls a b'];
    for (const line of [...wrong, 'ls --name x', 'freeze m1']) {
      assert.equal((await sandbar(['snapshot', ...line.split(' ')])).code, 2, line);
    }
    assert.deepEqual(api.calls, []);
  });
});
