// Tests that docs/metrics.md lists exactly the metrics that exist, and that their names follow the rules of Prometheus.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Registry } from 'prom-client';
import { createAgentMetrics } from '../../host-agent/src/metrics/metrics.ts';
import { type AgentState, addStateMetrics } from '../../host-agent/src/metrics/state.ts';
import type { App } from '../src/app.ts';
import { addFleetGauges, SAME } from '../src/metrics/fleet.ts';
import { createMetrics } from '../src/metrics/metrics.ts';
import { addDatabaseMetrics, addProcessMetrics } from '../src/metrics/process.ts';

/** The fields of a metric that prom-client has but does not declare. */
type Described = { name: string; help: string; type: string; labelNames: string[] };

const metricsOf = (registry: Registry) => registry.getMetricsAsArray() as unknown as Described[];

function ofControlPlane(): Described[] {
  const registry = new Registry();
  createMetrics(registry);
  addProcessMetrics(registry);
  addDatabaseMetrics(registry);
  addFleetGauges({ config: { overcommit: { memory: 1, vcpus: 1, disk: 1 } } } as App, registry);
  return metricsOf(registry);
}

function ofAgent(): Described[] {
  const registry = new Registry();
  createAgentMetrics(registry);
  addStateMetrics(registry, {} as AgentState);
  return metricsOf(registry);
}

const isShared = ({ help }: Described) => help.endsWith(SAME);

function rowOf({ name, type, labelNames, help }: Described): string {
  const labels = labelNames.map((label) => `\`${label}\``).join(', ') || '–';
  return `| \`${name}\` | ${type} | ${labels} | ${help.replace(SAME, '').trim()} |`;
}

const page = readFileSync(join(import.meta.dirname, '../../../docs/metrics.md'), 'utf8');

/** The rows of metrics below a heading. */
function documented(heading: string): string[] {
  const section = page.split('\n## ').find((text) => text.startsWith(`${heading}\n`)) ?? '';
  return section.split('\n').filter((line) => line.startsWith('| `'));
}

describe('docs/metrics.md', () => {
  it('lists what each replica counts', () => {
    const own = ofControlPlane().filter((metric) => !isShared(metric));
    assert.deepEqual(documented('Of one replica'), own.map(rowOf).sort());
  });

  it('lists what comes from the database', () => {
    assert.deepEqual(documented('Of the whole service'), ofControlPlane().filter(isShared).map(rowOf).sort());
  });

  it('lists the metrics of the host agent', () => {
    assert.deepEqual(documented('Of one host agent'), ofAgent().map(rowOf).sort());
  });
});

describe('the names of metrics', () => {
  const all = [...ofControlPlane(), ...ofAgent()];

  it('begin with sandbar_, and end with _total for counters only', () => {
    for (const { name, type } of all) {
      assert.match(name, /^sandbar_[a-z0-9_]+$/);
      assert.equal(name.endsWith('_total'), type === 'counter', name);
    }
  });

  it('have base units', () => {
    for (const { name } of all) assert.doesNotMatch(name, /_(ms|milliseconds|minutes|kb|mb|gb|mib|gib|percent)(_|$)/);
  });

  it('have no label that grows with use', () => {
    const allowed = new Set([
      ...['method', 'route', 'status', 'code', 'limit', 'outcome', 'path', 'form', 'kind', 'state', 'reason'],
      ...['result', 'host_id', 'host_name'],
    ]);
    for (const { name, labelNames } of all)
      assert.deepEqual(
        labelNames.filter((label) => !allowed.has(label)),
        [],
        name,
      );
  });
});
