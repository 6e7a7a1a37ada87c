// Tests the calculation of how many clones a pool keeps ready.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BURST_MS, type Demand, MEMORY_OF_DEMAND_MS, planPool } from '../src/pool/plan.ts';

const NOW = 10_000_000;
const limits = { size: 8, total: 100 };
const demand = (createdAt: number[], more: Partial<Demand> = {}): Demand => ({
  key: 'a',
  createdAt,
  baseline: 0,
  ...more,
});
const planned = (one: Demand, bounds = limits) => planPool([one], NOW, bounds).get('a');

describe('pool plan', () => {
  it('keeps as many clones as the largest recent burst created', () => {
    assert.equal(planned(demand([])), 0);
    assert.equal(planned(demand([NOW])), 1);
    assert.equal(planned(demand([NOW - 60_000, NOW - 60_000, NOW - 60_000, NOW])), 3);
  });

  it('counts creates as one burst when the first and the last are no further apart than a burst lasts', () => {
    const from = NOW - 2 * BURST_MS;
    assert.equal(planned(demand([from, from + BURST_MS])), 2);
    assert.equal(planned(demand([from, from + BURST_MS + 1])), 1);
    assert.equal(planned(demand([from, from + BURST_MS / 2, from + BURST_MS, from + 1.5 * BURST_MS])), 3);
  });

  it('forgets old demand', () => {
    assert.equal(planned(demand([NOW - MEMORY_OF_DEMAND_MS])), 1);
    assert.equal(planned(demand([NOW - MEMORY_OF_DEMAND_MS - 1])), 0);
  });

  it('keeps the baseline without requests, and not more for smaller requests', () => {
    assert.equal(planned(demand([], { baseline: 2 })), 2);
    assert.equal(planned(demand([NOW], { baseline: 2 })), 2);
    assert.equal(planned(demand([NOW, NOW, NOW], { baseline: 2 })), 3);
  });

  it('keeps at most `size` clones of a shape, and none with size 0', () => {
    const many = demand(new Array(50).fill(NOW), { baseline: 2 });
    assert.equal(planned(many), 8);
    assert.equal(planned(many, { size: 0, total: 100 }), 0);
  });

  it('bursts of other shapes take nothing from the baseline (RES-7)', () => {
    const odd = Array.from({ length: 9 }, (_, at) => demand(new Array(8).fill(NOW), { key: `odd ${at}` }));
    const plan = planPool([...odd, demand([], { key: 'default', baseline: 2 })], NOW, { size: 8, total: 10 });
    assert.equal(plan.get('default'), 2);
    assert.equal(
      [...plan.values()].reduce((a, b) => a + b),
      10,
    );
  });

  it('gives the total to the shapes requested most, and never exceeds it', () => {
    const shapes = [1, 5, 3].map((count, index) => demand(new Array(count).fill(NOW), { key: `shape ${index}` }));
    const plan = planPool(shapes, NOW, { size: 8, total: 7 });
    assert.deepEqual(Object.fromEntries(plan), { 'shape 1': 5, 'shape 2': 2, 'shape 0': 0 });
    for (const total of [0, 1, 4, 9]) {
      const sum = [...planPool(shapes, NOW, { size: 8, total }).values()].reduce((a, b) => a + b);
      assert.equal(sum, Math.min(total, 9));
    }
  });
});
