// Tests what the metrics of the agent say after starts of machines, and where they are served. Uses a fake hypervisor
// with the real starter, templates, pool and machines.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { serveMetrics } from '../src/metrics/metrics-server.ts';
import { type AgentState, addStateMetrics } from '../src/metrics/state.ts';
import { bareKeyOf, create, filled, idOf, keyOf, specOf, vmOf, warmHost } from './support/clones.ts';
import { FakeHost, until } from './support/fake-host.ts';

const hosts: FakeHost[] = [];
after(() => {
  for (const host of hosts) host.remove();
});
const newHost = (...cloning: ConstructorParameters<typeof FakeHost>) => {
  const host = new FakeHost(...cloning);
  hosts.push(host);
  return host;
};

/** The value of a series, such as `sandbar_agent_vms`; undefined when there is none. */
async function read(host: FakeHost, series: string): Promise<number | undefined> {
  const line = (await host.metricsRegistry.metrics()).split('\n').find((one) => one.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

const startsOf = (host: FakeHost, path: string) =>
  read(host, `sandbar_agent_machine_start_duration_seconds_count{path="${path}"}`);

describe('the metrics of the agent', () => {
  it('count starts by the way that the answer names: cold, pool, clone', async () => {
    const host = newHost({ size: 2, baseline: 0 });
    await host.start();
    assert.equal((await create(host, 1)).start_path, 'cold');
    await until('a template', () => host.templates?.has(keyOf(host)) === true);
    await filled(host);
    assert.equal((await create(host, 2)).start_path, 'pool');
    assert.deepEqual([await startsOf(host, 'cold'), await startsOf(host, 'pool')], [1, 1]);
    assert.equal(await read(host, 'sandbar_agent_pool_takes_total{result="miss"}'), 1);
    assert.equal(await read(host, 'sandbar_agent_pool_takes_total{result="hit"}'), 1);
    const made = await read(host, 'sandbar_agent_template_make_duration_seconds_count{outcome="made"}');
    assert.equal(made, 1);

    const poolless = await warmHost(newHost({ size: 0 }));
    assert.equal((await create(poolless, 2)).start_path, 'clone');
    assert.equal(await startsOf(poolless, 'clone'), 1);
  });

  it('count a machine that starts again as a bare clone', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    const again = async (generation: number) => {
      await host.registry.ensure(idOf(1), { generation, desired: 'stopped', spec: specOf(1) });
      return create(host, 1, { generation: generation + 1 });
    };
    assert.equal((await again(2)).start_path, 'cold');
    await until('a bare template', () => host.templates?.has(bareKeyOf(host)) === true);
    assert.equal((await again(4)).start_path, 'bare');
    assert.equal(await startsOf(host, 'bare'), 1);
  });

  it('do not count a call that starts nothing, and its answer names no way', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    assert.equal((await create(host, 1, { generation: 2 })).start_path, undefined);
    assert.equal(await startsOf(host, 'cold'), 1);
  });

  it('count a start that failed in every way', async () => {
    const host = newHost();
    await host.start();
    host.hypervisor.faults.push('launch', 'launch');
    await assert.rejects(create(host, 1));
    assert.equal(await read(host, 'sandbar_agent_machine_start_failures_total'), 1);
  });

  it('count sessions with a guest that could not be opened again', { timeout: 10_000 }, async () => {
    const host = await warmHost(newHost({ size: 0 }));
    host.hypervisor.faults.push('connectGuest', 'connectGuest');
    vmOf(host, 1).session?.close();
    while ((await read(host, 'sandbar_agent_guest_session_errors_total')) !== 2) await new Promise(setImmediate);
  });

  it('say which machines and VMs there are, and how full the disk is', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    const facts = { totalBytes: 300, freeBytes: 200, reserveBytes: 100 };
    const { vms, registry: machines } = host;
    const pool = { status: () => ({ ready: 1, target: 2 }) };
    const state: AgentState = { vms, machines, pool, reserve: { facts: () => facts, isShort: true } };
    addStateMetrics(host.metricsRegistry, state);
    await host.registry.ensure(idOf(2), { generation: 1, desired: 'stopped', spec: specOf(2) });
    const names = [
      ...['machines{status="running"}', 'machines{status="stopped"}', 'machines{status="failed"}', 'vms'],
      ...['pool_ready_clones', 'pool_target_clones', 'filesystem_free_bytes', 'disk_short'],
    ];
    const values = await Promise.all(names.map((name) => read(host, `sandbar_agent_${name}`)));
    assert.deepEqual(values, [1, 1, 0, 1, 1, 2, 200, 1]);
    assert.ok(vmOf(host, 1));
  });

  it('are served on an address of their own', async () => {
    const host = await warmHost(newHost({ size: 0 }));
    const server = await serveMetrics({ host: '127.0.0.1', port: 0 }, host.metricsRegistry);
    const get = (path: string) => fetch(`http://127.0.0.1:${server.address.port}${path}`);
    const answer = await get('/metrics');
    assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    assert.match(await answer.text(), /^sandbar_agent_machine_start_duration_seconds_count\{path="cold"\} 1$/m);
    assert.equal((await get('/v1/machines')).status, 404);
    await server.close();
  });
});
