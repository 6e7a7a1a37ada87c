// Tests the alerts and the dashboard: promtool accepts the rules, they fire when they should, and all metrics exist.
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { run } from '../packages/support/run.ts';
import { CHECKOUT, DEPLOY } from './support/checkout.ts';
import { ensurePromtool } from './support/tools.ts';

const FOLDER = path.join(DEPLOY, 'prometheus');
/** What Prometheus derives from a histogram. */
const OF_HISTOGRAM = /_(bucket|count|sum)$/;

let promtool = '';
before(async () => {
  promtool = await ensurePromtool();
});

const read = (name: string) => readFile(path.join(FOLDER, name), 'utf8');
const check = async (...args: string[]) => {
  const { code, stdout, stderr } = await run(promtool, args, { cwd: FOLDER });
  assert.equal(code, 0, `${stdout}${stderr}`);
};

/** The names of our metrics in a text. */
const metricsIn = (text: string) => new Set(text.match(/\bsandbar_[a-z_]+/g) ?? []);

/** The names of metrics that the programs can report: those between quotes in their sources. */
async function metricsOfCode(): Promise<Set<string>> {
  const files = globSync('packages/{control-plane,host-agent}/src/**/*.ts', { cwd: CHECKOUT });
  const texts = await Promise.all(files.map((file) => readFile(path.join(CHECKOUT, file), 'utf8')));
  return new Set(texts.flatMap((text) => Array.from(text.matchAll(/'(sandbar_[a-z_]+)'/g), ([, name = '']) => name)));
}

describe('Prometheus', () => {
  it('accepts the scrape configuration and the rules', async () => {
    await check('check', 'config', 'prometheus.yml');
    await check('check', 'rules', 'sandbar.rules.yml');
  });

  it('raises the alerts when it should, and not before', () => check('test', 'rules', 'sandbar.rules.test.yml'));

  for (const file of ['sandbar.rules.yml', 'sandbar.rules.test.yml', 'dashboard.json']) {
    it(`finds every metric of ${file}`, async () => {
      const known = await metricsOfCode();
      const isKnown = (name: string) => known.has(name) || known.has(name.replace(OF_HISTOGRAM, ''));
      const unknown = [...metricsIn(await read(file))].filter((name) => !isKnown(name));
      assert.deepEqual(unknown, []);
    });
  }

  it('gets a summary, a description and a severity with every alert', async () => {
    const rules = (await read('sandbar.rules.yml')).split('- alert: ').slice(1);
    assert.ok(rules.length > 0);
    const incomplete = rules.filter(
      (rule) =>
        !/severity: (critical|warning)\b/.test(rule) || !/summary: ./.test(rule) || !/description: ./.test(rule),
    );
    assert.deepEqual(incomplete, []);
  });
});

type Panel = { id: number; type: string; title: string; targets?: { expr: string }[]; gridPos: Record<string, number> };

describe('the Grafana dashboard', () => {
  it('has a query in every panel, and takes its data source from a variable', async () => {
    const { panels, templating } = JSON.parse(await read('dashboard.json')) as {
      panels: Panel[];
      templating: { list: { name: string; type: string }[] };
    };
    assert.deepEqual(
      templating.list.map(({ name, type }) => ({ name, type })),
      [{ name: 'datasource', type: 'datasource' }],
    );
    const empty = panels.filter(({ type, targets }) => type !== 'row' && !targets?.every(({ expr }) => expr !== ''));
    assert.deepEqual(empty, []);
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
    const isWithin = ({ gridPos: { x = 0, w = 0 } }: Panel) => x + w <= 24;
    assert.ok(panels.every(isWithin));
  });
});
