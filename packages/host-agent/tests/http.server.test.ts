// Tests the host API as the control plane uses it: every path of the contract exists, and every error has its code.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { HOST_PATHS } from '@sandbar/contract/host-api.ts';
import { createLog } from '@sandbar/logging/log.ts';
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
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
    const { volumes, dataVolumes, volumeCopies, machineCopies, snapshots, garbage, room, audit, transfers } = host;
    server = buildServer(
      {
        ...{ info, bootId: 'boot-1', machines, volumes, dataVolumes, volumeCopies, snapshots },
        ...{ machineCopies, garbage, room, audit, transfers },
        ...{ registry: host.metricsRegistry, tracing: NO_TRACING },
      },
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

  it('starts nothing when a machine must run already, and ignores a parameter of a later version', async () => {
    const payload = { generation: 1, desired: 'running', spec: SPEC };
    const put = (id: string, query: string) =>
      server.inject({ method: 'PUT', url: `/v1/machines/${id}?${query}`, payload });
    const absent = await put(JOB, 'only_if_running=true');
    assert.deepEqual([absent.statusCode, absent.json().code], [409, 'conflict']);
    assert.equal((await put(ID, 'only_if_running=true')).statusCode, 200);
    assert.equal((await put(ID, 'later_condition=true')).statusCode, 200);
  });

  it('has a route for every path of the contract', () => {
    const routes = server.printRoutes({ commonPrefix: false });
    for (const path of Object.values(HOST_PATHS))
      assert.ok(server.hasRoute({ url: path, method: routeMethod(path) }), `${path}\n${routes}`);
  });

  const routeMethod = (path: string) => {
    const posts: string[] = [HOST_PATHS.jobCancel, HOST_PATHS.auditFix, HOST_PATHS.guestCall, HOST_PATHS.guestStream];
    if (posts.includes(path)) return 'POST';
    if (path === HOST_PATHS.machineSnapshot) return 'PUT';
    return path === HOST_PATHS.volume || path === HOST_PATHS.snapshot ? 'DELETE' : 'GET';
  };

  it('serves the metrics as text', async () => {
    const metrics = await server.inject({ url: '/v1/metrics' });
    assert.match(String(metrics.headers['content-type']), /^text\/plain; version=0\.0\.4/);
    assert.match(metrics.payload, /^sandbar_agent_machine_start_duration_seconds_count\{path="cold"\} 1$/m);
  });

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

  it('while the disk is short, whatever makes it fuller is a fleet_capacity, and the rest goes on (RES-1)', async () => {
    const call = (method: 'PUT' | 'POST' | 'GET', url: string, payload?: object) =>
      server.inject(payload ? { method, url, payload } : { method, url });
    const machine = { generation: 1, desired: 'running', spec: { ...SPEC, private_ip: '10.200.0.10' } };
    const growing = [
      [`/v1/machines/${JOB}`, machine],
      [`/v1/volumes/${JOB}`, { size_gb: 5 }],
      [`/v1/machines/${ID}/snapshots/${JOB}`, { generation: 1, memory: false }],
      [`/v1/machines/${ID}/jobs/${JOB}`, { command: 'x', timeout_sec: 5, generation: 1 }],
    ] as const;
    host.room.isShort = true;
    for (const [url, payload] of growing) {
      const answer = await call('PUT', url, payload);
      assert.deepEqual([answer.statusCode, answer.json().code], [503, 'fleet_capacity'], url);
      assert.equal(answer.headers['retry-after'], '60');
    }
    assert.equal((await call('PUT', `/v1/machines/${ID}`, { ...machine, spec: SPEC })).statusCode, 200);
    assert.equal((await call('GET', `/v1/machines/${ID}`)).json().status, 'running');
    assert.equal(
      (await call('PUT', `/v1/machines/${ID}`, { ...machine, generation: 2, desired: 'stopped', spec: SPEC }))
        .statusCode,
      200,
    );
    assert.equal((await call('PUT', `/v1/machines/${ID}`, { ...machine, generation: 3, spec: SPEC })).statusCode, 503);
    host.room.isShort = false;
    for (const [url, payload] of [
      [`/v1/machines/${ID}`, { ...machine, generation: 3, spec: SPEC }],
      ...growing.slice(0, 2),
    ] as const)
      assert.equal((await call('PUT', url, payload)).statusCode, 200, url);
  });
});
