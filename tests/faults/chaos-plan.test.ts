// Tests that the same seed of `npm run chaos` gives the same faults, and that a short run has every kind of fault.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FAULT_KINDS, planFaults } from '../../bench/chaos/plan.ts';

describe('the plan of a chaos run', () => {
  it('is the same for the same seed, also when the run is longer, and another one for another seed', () => {
    const plan = planFaults(7, 24);
    assert.equal(plan.length, 24);
    assert.deepEqual(planFaults(7, 200).slice(0, 24), plan);
    assert.notDeepEqual(planFaults(8, 24), plan);
  });

  it('has every kind of fault once in eight', () => {
    const kinds = planFaults(1, 16).map(({ kind }) => kind);
    assert.deepEqual(kinds.slice(0, 8).toSorted(), FAULT_KINDS.toSorted());
    assert.deepEqual(kinds.slice(8).toSorted(), FAULT_KINDS.toSorted());
    assert.notDeepEqual(kinds.slice(0, 8), kinds.slice(8));
  });
});
