// Tests the host API as the control plane uses it: every path of the contract exists, and every error has its code.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { HOST_PATHS } from '@sandbar/contract/host-api.ts';
import { createLog } from '@sandbar/logging/log.ts';
import { buildServer } from '../src/http/server.ts';
import { FakeHost, SPEC } from './support/fake-host.ts';

const ID = '019a0000-0000-7000-8000-00000000000b';
const JOB = '019a0000-0000-7000-8000-00000000000c';

describe('host API', () => {
  const host = new FakeHost();
  let server: ReturnType<typeof buildServer>;
  before(async () => {
    const machines = await host.start();
    const info = () => assert.fail('not asked for here');
    const { volumes, dataVolumes, snapshots, garbage, audit } = host;
    server = buildServer(
      { info, bootId: 'boot-1', machines, volumes, dataVolumes, snapshots, garbage, audit },
      createLog({ process: 'host-agent', level: 'silent' }),
    );
    await machines.ensure(ID, { generation: 1, desired: 'running', spec: SPEC });
  });
  after(async () => {
    await server.close();
    host.remove();
  });

  it('reports one machine, and answers not_found for an unknown one', async () => {
    const known = await server.inject({ url: `/v1/machines/${ID}` });
    assert.deepEqual([known.statusCode, known.json().status], [200, 'running']);
    const unknown = await server.inject({ url: `/v1/machines/${JOB}` });
    assert.deepEqual([unknown.statusCode, unknown.json().code], [404, 'not_found']);
  });

  it('has a route for every path of the contract', () => {
    const routes = server.printRoutes({ commonPrefix: false });
    for (const path of Object.values(HOST_PATHS))
      assert.ok(server.hasRoute({ url: path, method: routeMethod(path) }), `${path}\n${routes}`);
  });

  const routeMethod = (path: string) => {
    if (path === HOST_PATHS.jobCancel || path === HOST_PATHS.auditFix) return 'POST';
    if (path === HOST_PATHS.machineSnapshot) return 'PUT';
    return path === HOST_PATHS.volume || path === HOST_PATHS.snapshot ? 'DELETE' : 'GET';
  };

  it('a job may have variables of any name', async () => {
    const url = `/v1/machines/${ID}/jobs/${JOB}`;
    const payload = '{"command":"env","timeout_sec":10,"generation":1,"env":{"__proto__":"a","constructor":"b"}}';
    const started = await server.inject({
      method: 'PUT',
      url,
      payload,
      headers: { 'content-type': 'application/json' },
    });
    assert.equal(started.statusCode, 201, started.payload);
  });

  it('a malformed call is a validation_error, an unknown path is not taken for an absent machine', async () => {
    const bad = await server.inject({ method: 'PUT', url: `/v1/machines/${ID}`, payload: { generation: 0 } });
    assert.deepEqual([bad.statusCode, bad.json().code], [400, 'validation_error']);
    const unknown = await server.inject({ url: '/v1/nothing' });
    assert.deepEqual([unknown.statusCode, unknown.json().code], [500, 'internal_error']);
  });
});
