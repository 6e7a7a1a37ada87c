// Tests that requests for rarely used machine sizes do not displace the templates of sizes that are in use.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { shapeOf } from '../src/machines/starter.ts';
import { DEMAND_MS, TemplateDemand } from '../src/templates/demand.ts';
import { create, filled, idOf, imageOf, keyOf, specOf, wayOf } from './support/clones.ts';
import { FakeHost, until } from './support/fake-host.ts';

/** Memory that the fake guest uses: one page. */
const USED_BYTES = 4096;
const ODD = 200;
const DEFAULT = { vcpus: 2 };
const OTHER = { vcpus: 3 };
const oddSize = (number: number) => ({ memory_mb: 100 + number });

describe('templates and odd shapes', () => {
  const used: FakeHost[] = [];
  after(() => {
    for (const host of used) host.remove();
  });

  /** A host with room for three templates, on which the default shape and another one are in use. */
  async function busyHost(): Promise<FakeHost> {
    const host = new FakeHost({
      size: 1,
      baseline: 1,
      total: 2,
      memoryBytes: 3 * USED_BYTES,
      requestsForTemplate: 2,
    });
    used.push(host);
    await host.start();
    host.pool?.keep(shapeOf({ spec: specOf(0, DEFAULT), image: imageOf(host), layerPaths: [] }));
    await filled(host);
    await createBriefly(host, 1, OTHER);
    await createBriefly(host, 2, OTHER);
    await until('the other template', () => host.templates?.has(keyOf(host, OTHER)) === true);
    for (const number of [3, 4]) await createBriefly(host, number, OTHER);
    return host;
  }
  async function createBriefly(host: FakeHost, number: number, size: Parameters<typeof create>[2]): Promise<string> {
    await create(host, number, size);
    const way = wayOf(host, number);
    await host.registry.destroy(idOf(number), 9);
    return way;
  }
  const launchedTemplates = (host: FakeHost) =>
    host.hypervisor.launched.filter(({ start }) => start.kind === 'boot' && start.memoryPath !== undefined).length;

  for (const times of [1, 2]) {
    it(`${ODD} sizes, each requested ${times} times, leave the default shape and another one as clones (RES-7)`, async () => {
      const host = await busyHost();
      const before = launchedTemplates(host);
      for (let time = 0; time < times; time++)
        for (let number = 0; number < ODD; number++)
          await createBriefly(host, 1000 + time * ODD + number, oddSize(number));
      assert.match(await createBriefly(host, 5, DEFAULT), /clone/);
      assert.match(await createBriefly(host, 6, OTHER), /clone/);
      const made = launchedTemplates(host) - before;
      assert.ok(times === 1 ? made === 0 : made <= 2, `${made} templates were made`);
      await host.close();
    });
  }

  it('a shape that is requested more often than one that has a template takes its place (RES-7)', async () => {
    const host = await busyHost();
    for (let number = 10; number < 20; number++) await createBriefly(host, number, oddSize(1));
    await until('its template', () => host.templates?.has(keyOf(host, oddSize(1))) === true);
    assert.match(await createBriefly(host, 20, oddSize(1)), /clone/);
    assert.equal(host.templates?.has(keyOf(host, DEFAULT)), true);
    await host.close();
  });

  it('requests count for an hour (RES-7)', () => {
    let now = 0;
    const demand = new TemplateDemand(() => now);
    demand.note('a');
    now = DEMAND_MS / 2;
    demand.note('a');
    assert.deepEqual([demand.count('a'), demand.count('b')], [2, 0]);
    now = DEMAND_MS + 1;
    assert.equal(demand.count('a'), 1);
    for (let round = 0; round < 1000; round++) demand.note('a');
    assert.equal(demand.count('a'), 100);
  });
});
