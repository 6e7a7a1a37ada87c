// Tests the commands about machines, and how machines are found by name, against a stand-in for the API.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  ABSENT,
  api,
  MACHINE,
  machine,
  printed,
  SNAPSHOT,
  sandbar,
  useStandIn,
  VOLUME,
} from './testing/api-stand-in.ts';

useStandIn();

describe('sandbar machine', () => {
  it('ls prints a table, with states in colour only on a terminal', async () => {
    for (const line of ['ls', 'machine ls', 'machines', 'machines list']) {
      assert.match(await printed(line), new RegExp(`^ID +NAME .*\\n${MACHINE} +- +running`), line);
    }
    assert.equal(await printed('ls -q'), `${MACHINE}\n`);
  });

  it('ls sends its filters', async () => {
    await sandbar(['ls', '--state', 'stopped', '--name', 'web', '--metadata', 'team=a', '--metadata', 'x=y=z']);
    assert.deepEqual(api.queries, ['GET state=stopped&name=web&metadata.team=a&metadata.x=y%3Dz']);
    assert.equal((await sandbar(['ls', '--state', 'asleep'])).code, 2);
  });

  it('get shows the expiry, and the operation under way on standard error', async () => {
    api.fields = {
      operation: { kind: 'stop', since: 's', attempts: 2, last_error: 'The host is away.' },
      expires_at: 'e',
      on_expiry: 'stop',
    };
    for (const args of [['ls'], ['machine', 'get', MACHINE], ['machines', 'show', MACHINE]]) {
      const { stdout, stderr } = await sandbar(args);
      assert.match(
        stdout.toString(),
        /^ID +NAME +STATE +OPERATION .* EXPIRES\n.* +- +running +stop +.* t +e \(stop\)\n$/,
      );
      assert.equal(stderr, `sandbar: ${MACHINE}: stop is under way since s, attempt 2: The host is away.\n`);
    }
  });

  it('create and set send the options', async () => {
    const json = async (line: string) => JSON.parse(await printed(`machine ${line} --json`));
    assert.equal((await json('create --memory 256 --env A=b --expires 2d')).id, MACHINE);
    await json(`set ${MACHINE} --name n --metadata k=v --expires 90s --on-expiry destroy`);
    await json(`set ${MACHINE} --expires never`);
    await sandbar(['machines', 'update', MACHINE, '--name', 'old']);
    const change = `PATCH /v1/machines/${MACHINE}`;
    assert.deepEqual(api.calls, ['POST /v1/machines', change, change, change]);
    assert.deepEqual(
      api.bodies.map((body) => JSON.parse(body)),
      [
        { memory_mb: 256, env: { A: 'b' }, expires_in_sec: 172_800 },
        { name: 'n', metadata: { k: 'v' }, expires_in_sec: 90, on_expiry: 'destroy' },
        { expires_in_sec: null },
        { name: 'old' },
      ],
    );
  });

  it('a wrong command line exits with 2 and sends no request', async () => {
    const wrong = ['set', 'set m1', 'set m1 --expires 1w', 'set m1 --expires 5s', 'create m1', 'stop', 'list x'];
    for (const line of [
      ...wrong,
      'set m1 --on-expiry sleep',
      'set m1 --metadata k',
      'create --env ,',
      'wait m1 --for x',
    ]) {
      assert.equal((await sandbar(['machine', ...line.split(' ')])).code, 2, line);
    }
    assert.deepEqual(api.calls, []);
  });

  it('create and run find a snapshot and a root volume by name', async () => {
    api.others = [{ id: ABSENT, name: 'disk' }];
    await sandbar(['machine', 'create', '--snapshot', 'before']);
    await sandbar(['run', '--root-volume', 'disk', '--', 'true']);
    assert.equal(JSON.parse(api.bodies[0] ?? '').snapshot_id, SNAPSHOT);
    assert.equal(JSON.parse(api.bodies[1] ?? '').root_volume_id, ABSENT);
    assert.ok(api.queries.includes('DELETE preserve_storage=true'), api.queries.join());
  });

  it('create attaches volumes, each by id or name and with a path if wanted', async () => {
    api.others = [{ id: ABSENT, name: 'da:ta' }];
    await sandbar(['machine', 'create', '--volume', 'da:ta:/var/d:ata', '--volume', VOLUME]);
    assert.deepEqual(JSON.parse(api.bodies[0] ?? '').volumes, [
      { volume_id: ABSENT, mount_path: '/var/d:ata' },
      { volume_id: VOLUME },
    ]);
    assert.equal((await sandbar(['machine', 'create', '--volume', ''])).code, 2);
  });

  it('rm destroys without asking, but asks before it deletes snapshots', async () => {
    assert.equal((await sandbar(['machine', 'rm', MACHINE])).code, 0);
    const { code, stderr } = await sandbar(['machine', 'rm', MACHINE, '--delete-snapshots']);
    assert.equal(code, 2);
    assert.match(stderr, /all of their snapshots\? Nothing was changed: .* --yes\n$/);
    assert.equal(api.calls.length, 1);
    await sandbar(['machine', 'rm', MACHINE, '--delete-snapshots', '--yes']);
    await sandbar(['machines', 'destroy', MACHINE, '--delete-snapshots']);
    assert.deepEqual(api.queries.slice(-2), Array(2).fill('DELETE delete_snapshots=true'));
  });

  it('rm tells what happened to each machine, also when a later one fails', async () => {
    api.fields = { state: 'destroyed' };
    const rm = async (...args: string[]) => {
      const { code, stdout, stderr } = await sandbar(['machine', 'rm', '--keep-disk', ...args]);
      return { code, stdout: stdout.toString(), stderr };
    };
    const one = await rm(MACHINE, ABSENT);
    assert.deepEqual([one.code, one.stdout], [5, `${MACHINE}: destroyed\n`]);
    assert.match(
      one.stderr,
      new RegExp(`^sandbar: ${MACHINE}: its disk is kept as volume ${VOLUME}\nsandbar: not_found`),
    );
    const asJson = await rm(MACHINE, ABSENT, '--json');
    assert.equal(asJson.code, 5);
    assert.deepEqual(JSON.parse(asJson.stdout), [machine()]);
    assert.deepEqual(JSON.parse((await rm(MACHINE, '--json')).stdout), machine());
    assert.equal((await rm(ABSENT, '--json')).stdout, '');
  });

  it('wait returns at the wanted state, and fails at once when the machine cannot reach that state', async () => {
    assert.equal((await sandbar(['machine', 'wait', MACHINE])).code, 0);
    api.fields = { state: 'error', error: 'The disk is gone.' };
    const { code, stderr } = await sandbar(['machine', 'wait', MACHINE]);
    assert.equal(code, 1);
    assert.match(stderr, /is error, so it does not become running: The disk is gone\.\n$/);
    api.fields = { state: 'running' };
    assert.equal((await sandbar(['machine', 'wait', MACHINE, '--for', 'stopped', '--timeout', '1s'])).code, 124);
  });
});

describe('a machine on the command line', () => {
  it('is used without a search when its full id is given', async () => {
    await sandbar(['machine', 'get', MACHINE.toUpperCase()]);
    assert.deepEqual(api.calls, [`GET /v1/machines/${MACHINE}`]);
  });

  it('is found by its name and by the beginning of its id, with one list for all of them', async () => {
    api.fields = { name: 'web' };
    api.others = [{ id: ABSENT, name: 'db' }];
    await sandbar(['machine', 'stop', 'web', MACHINE.slice(0, 12), 'db']);
    assert.deepEqual(api.calls, [
      'GET /v1/machines',
      `POST /v1/machines/${MACHINE}/stop`,
      `POST /v1/machines/${ABSENT}/stop`,
    ]);
    for (const args of [
      ['exec', 'web', '--', 'x'],
      ['ports', 'web'],
      ['files', 'ls', 'web:/'],
      ['jobs', 'web'],
      ['shell', 'web', '--list'],
      ['snapshot', 'create', 'web'],
      ['volume', 'attach', VOLUME, 'web'],
      ['activity', 'web'],
      ['usage', '--machine', 'web'],
    ]) {
      api.calls = [];
      await sandbar(args);
      assert.equal(api.calls[0], 'GET /v1/machines', args.join(' '));
    }
  });

  it('exits with 2 and the candidates when several match, with 5 when none does, and changes nothing', async () => {
    api.fields = { name: 'web' };
    api.others = [{ id: ABSENT, name: 'web' }];
    const ambiguous = await sandbar(['machine', 'rm', MACHINE, 'web']);
    assert.equal(ambiguous.code, 2);
    assert.match(
      ambiguous.stderr,
      new RegExp(`^sandbar: "web" is not one machine but 2; .*${MACHINE} \\(web\\), ${ABSENT} `),
    );
    // Three characters are too few for the beginning of an id.
    for (const unknown of ['we', '019', '019b2d6d']) {
      const { code, stderr } = await sandbar(['machine', 'rm', MACHINE, unknown]);
      assert.equal(code, 5, unknown);
      assert.match(stderr, /^sandbar: there is no machine with .*; sandbar machine ls lists them\n$/);
    }
    assert.ok(!api.calls.some((call) => call.startsWith('DELETE')), api.calls.join());
  });
});
