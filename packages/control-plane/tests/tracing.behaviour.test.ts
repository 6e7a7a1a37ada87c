// Tests that one trace leads from the client's request through the control plane and the host agent to the guest. The
// agent's parts are real, from its HTTP server to its machines; only the hypervisor, the guest and the network are
// fake.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { createLog } from '@sandbar/logging/log.ts';
import { startTracing } from '@sandbar/tracing/start.ts';
import { buildServer } from '../../host-agent/src/http/server.ts';
import { FakeHost as FakeAgent } from '../../host-agent/tests/support/fake-host.ts';
import { type CollectedSpan, Collector } from '../../tracing/tests/support/collector.ts';
import { openStream } from './support/event-stream.ts';
import { FAKE_HOST_ID, FakeHost } from './support/fake-host.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const collector = await Collector.start();
const silent = createLog({ process: 'test', level: 'silent' });
// Spans are sent at once, so that the test need not wait.
process.env.OTEL_BSP_SCHEDULE_DELAY = '10';
const startOne = (service: string) => startTracing({ service, env: collector.env, log: silent });
const [ofControlPlane, ofAgent] = [await startOne('control-plane'), await startOne('host-agent')];
delete process.env.OTEL_BSP_SCHEDULE_DELAY;

const agent = new FakeAgent({});
agent.tracing = ofAgent;
const socket = join(agent.dir, 'agent.sock');
const machines = await agent.start();
const { info } = new FakeHost(socket, { subnet: '10.200.0.0/16' });
const { volumes, dataVolumes, volumeCopies, machineCopies, snapshots, garbage, room, audit, transfers } = agent;
const server = buildServer(
  {
    ...{ info: () => info, bootId: 'boot-1', machines, volumes, dataVolumes, snapshots, garbage, room, audit },
    ...{ volumeCopies, machineCopies, transfers },
    ...{ registry: agent.metricsRegistry, tracing: ofAgent },
  },
  silent,
);
await server.listen({ path: socket });
const bed = await startTestBed({
  config: { hostAgentSocket: socket },
  tracing: ofControlPlane,
  timing: { reconcileMs: 3_600_000 },
});
after(async () => {
  await server.close();
  await ofAgent.close();
  await agent.close();
  agent.remove();
  await collector.close();
});

/** Waits until both processes have sent their spans of a trace, and returns them. */
async function traceOf(traceId: string, route: string): Promise<CollectedSpan[]> {
  const own = () => collector.spans.filter((span) => span.traceId === traceId);
  await until(() => own().some(({ name, service }) => service === 'control-plane' && name === route), route);
  await until(() => own().every(({ parentSpanId }) => isKnown(own(), parentSpanId)), 'each span has its parent');
  const calls = () => own().filter(({ name }) => name.startsWith('host '));
  await until(() => calls().every(({ spanId }) => own().some((span) => span.parentSpanId === spanId)), 'the agent too');
  return own();
}

const CLIENT_SPAN = 'c0ffee00c0ffee00';
const isKnown = (spans: readonly CollectedSpan[], id: string | undefined) =>
  id === CLIENT_SPAN || spans.some(({ spanId }) => spanId === id);

/** Starts a trace as a client does. */
function newTrace(): { traceId: string; headers: { traceparent: string } } {
  const traceId = randomUUID().replaceAll('-', '');
  return { traceId, headers: { traceparent: `00-${traceId}-${CLIENT_SPAN}-01` } };
}

/** The names on the way from the top of the trace to this span. */
function wayTo(spans: readonly CollectedSpan[], name: string): string[] {
  const span = spans.find((one) => one.name === name);
  assert(span, `there is no ${name} in ${spans.map((one) => one.name).join(', ')}`);
  const parent = spans.find(({ spanId }) => spanId === span.parentSpanId);
  return parent ? [...wayTo(spans, parent.name), `${span.service}: ${name}`] : [`${span.service}: ${name}`];
}

const CREATE = 'POST /v1/machines';
const EXEC = 'POST /v1/machines/:id/execs';
const toAgent = (route: string, operation: string) => [
  `control-plane: ${route}`,
  operation,
  'control-plane: host PUT /v1/machines/:id',
  'host-agent: PUT /v1/machines/:id',
];

describe('the trace of a request', () => {
  it('leads through the phases of a create to the identity of the guest', async () => {
    const { traceId, headers } = newTrace();
    const { status, json, headers: answered } = await bed.api('POST', '/v1/machines', { body: {}, headers });
    assert.equal(status, 201);
    const spans = await traceOf(traceId, CREATE);
    const host = toAgent(CREATE, 'control-plane: operation.create');
    assert.deepEqual(wayTo(spans, 'guest.identity'), [
      ...host,
      'host-agent: machine.start',
      'host-agent: guest.identity',
    ]);
    assert.deepEqual(wayTo(spans, 'vm.launch'), [...host, 'host-agent: machine.start', 'host-agent: vm.launch']);
    assert.deepEqual(wayTo(spans, 'machine.admit'), [`control-plane: ${CREATE}`, 'control-plane: machine.admit']);
    assert.deepEqual(wayTo(spans, 'operation.record').slice(1), [
      'control-plane: operation.create',
      'control-plane: operation.record',
    ]);

    const find = (name: string) => spans.find((span) => span.name === name);
    assert.equal(find('machine.start')?.attributes['sandbar.start_path'], 'cold');
    assert.equal(find('operation.create')?.attributes['sandbar.machine_id'], json.id);
    assert.deepEqual(find(CREATE)?.attributes, {
      'http.request.method': 'POST',
      'http.route': '/v1/machines',
      'http.response.status_code': 201,
      'sandbar.request_id': answered.get('x-request-id'),
      'sandbar.account_id': bed.accountId,
    });
    assert.equal(find(CREATE)?.parentSpanId, CLIENT_SPAN);
  });

  it('leads through an exec to the answer of the guest', async () => {
    const { json } = await bed.api('POST', '/v1/machines', { body: {} });
    const { traceId, headers } = newTrace();
    const started = await bed.api('POST', `/v1/machines/${json.id}/execs`, { body: { command: 'true' }, headers });
    assert.equal(started.status, 201);
    const spans = await traceOf(traceId, EXEC);
    assert.deepEqual(wayTo(spans, 'guest.job'), [
      `control-plane: ${EXEC}`,
      'control-plane: host PUT /v1/machines/:id/jobs/:id',
      'host-agent: PUT /v1/machines/:id/jobs/:job_id',
      'host-agent: guest.job',
    ]);
    assert.equal(spans.find(({ name }) => name === EXEC)?.attributes['sandbar.machine_id'], json.id);
  });

  it('shows a refusal with its code, and fails for an error of the server only', async () => {
    const { traceId, headers } = newTrace();
    await bed.api('GET', `/v1/machines/${randomUUID()}`, { headers });
    const [span] = await traceOf(traceId, 'GET /v1/machines/:id');
    assert.equal(span?.attributes['sandbar.error_code'], 'not_found');
    assert.equal(span?.isFailed, false);

    const broken = newTrace();
    const { json } = await bed.api('POST', '/v1/machines', { body: {} });
    agent.room.isShort = true;
    await bed.api('POST', `/v1/machines/${json.id}/execs`, { body: { command: 'true' }, headers: broken.headers });
    agent.room.isShort = false;
    const spans = await traceOf(broken.traceId, EXEC);
    const failed = spans.filter(({ isFailed }) => isFailed).map(({ service, name }) => `${service}: ${name}`);
    assert.deepEqual(failed.sort(), [
      `control-plane: ${EXEC}`,
      'control-plane: host PUT /v1/machines/:id/jobs/:id',
      'host-agent: PUT /v1/machines/:id/jobs/:job_id',
    ]);
  });

  it('is one span for an event stream, however many pages it reads', async () => {
    const { json } = await bed.api('POST', '/v1/machines', { body: {} });
    const path = `/v1/machines/${json.id}/execs`;
    const started = await bed.api('POST', path, { body: { command: 'true' } });
    const { traceId, headers } = newTrace();
    const authorization = `Bearer ${bed.keys.full}`;
    const vm = [...agent.hypervisor.running.values()].find(({ identity }) => identity?.machineId === json.id);
    const job = vm?.jobs.get(started.json.id);
    assert(job);
    const stream = await openStream(bed.plane, `${path}/${started.json.id}/output`, { ...headers, authorization });
    for (let page = 1; page <= 3; page++) {
      job.print('stdout', 'a page');
      await until(() => stream.events.length >= page, 'the page has arrived');
    }
    job.finish(started.json.id);
    await stream.ended;
    const spans = await traceOf(traceId, 'GET /v1/machines/:id/execs/:exec_id/output');
    assert.deepEqual(
      spans.map(({ service }) => service),
      ['control-plane'],
    );
  });

  it('has no span for what the reconciler does because of it', async () => {
    const { json } = await bed.api('POST', '/v1/machines', { body: {} });
    agent.hypervisor.faults.push('end');
    assert.notEqual((await bed.api('POST', `/v1/machines/${json.id}/stop`)).status, 200);
    const { tracing, reconcileSoon } = bed.plane.app;
    const attempts = () => collector.spans.filter(({ name }) => name === 'operation.stop');
    // The second attempt is due after a pause, and nothing but this request asks the reconciler for it.
    await tracing.trace('asks', {}, () =>
      until(() => {
        reconcileSoon();
        return attempts().length === 2;
      }, 'the reconciler has made the second attempt'),
    );
    assert.equal(attempts().at(-1)?.parentSpanId, undefined, 'it is a trace of its own');
  });

  it('has no span for what the service does by itself', async () => {
    assert.deepEqual(
      collector.spans.filter(({ name }) => /\/v1\/(host|events|machines)$/.test(name) && name !== CREATE),
      [],
    );
    assert.ok(bed.plane.app.hosts.listenedIds().includes(FAKE_HOST_ID), 'the control plane does call the host');
  });
});
